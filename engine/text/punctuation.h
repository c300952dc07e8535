/* SPDX-License-Identifier: Apache-2.0
 * engine/text/punctuation.h - the characters at which "Punctuation" of tokenizer.json splits, as a character class of
 * a regular expression.
 *
 * These are the category P as of Unicode 8, and all of ASCII that is neither letter, digit, blank nor control. The
 * published tokenizers were trained with this table. A library's newer table would split at other places: P gained
 * some 100 characters and lost 2 until Unicode 14.
 */
#ifndef HD_TEXT_PUNCTUATION_H
#define HD_TEXT_PUNCTUATION_H

/* clang-format off */
#define HD_PUNCTUATION \
	"[" \
	"\\x{21}-\\x{2f}\\x{3a}-\\x{40}\\x{5b}-\\x{60}\\x{7b}-\\x{7e}\\x{a1}\\x{a7}\\x{ab}\\x{b6}\\x{b7}" \
	"\\x{bb}\\x{bf}\\x{37e}\\x{387}\\x{55a}-\\x{55f}\\x{589}\\x{58a}\\x{5be}\\x{5c0}\\x{5c3}\\x{5c6}" \
	"\\x{5f3}\\x{5f4}\\x{609}\\x{60a}\\x{60c}\\x{60d}\\x{61b}\\x{61e}\\x{61f}\\x{66a}-\\x{66d}\\x{6d4}" \
	"\\x{700}-\\x{70d}\\x{7f7}-\\x{7f9}\\x{830}-\\x{83e}\\x{85e}\\x{964}\\x{965}\\x{970}\\x{af0}\\x{df4}" \
	"\\x{e4f}\\x{e5a}\\x{e5b}\\x{f04}-\\x{f12}\\x{f14}\\x{f3a}-\\x{f3d}\\x{f85}\\x{fd0}-\\x{fd4}" \
	"\\x{fd9}\\x{fda}\\x{104a}-\\x{104f}\\x{10fb}\\x{1360}-\\x{1368}\\x{1400}\\x{166d}\\x{166e}" \
	"\\x{169b}\\x{169c}\\x{16eb}-\\x{16ed}\\x{1735}\\x{1736}\\x{17d4}-\\x{17d6}\\x{17d8}-\\x{17da}" \
	"\\x{1800}-\\x{180a}\\x{1944}\\x{1945}\\x{1a1e}\\x{1a1f}\\x{1aa0}-\\x{1aa6}\\x{1aa8}-\\x{1aad}" \
	"\\x{1b5a}-\\x{1b60}\\x{1bfc}-\\x{1bff}\\x{1c3b}-\\x{1c3f}\\x{1c7e}\\x{1c7f}\\x{1cc0}-\\x{1cc7}" \
	"\\x{1cd3}\\x{2010}-\\x{2027}\\x{2030}-\\x{2043}\\x{2045}-\\x{2051}\\x{2053}-\\x{205e}" \
	"\\x{207d}\\x{207e}\\x{208d}\\x{208e}\\x{2308}-\\x{230b}\\x{2329}\\x{232a}\\x{2768}-\\x{2775}" \
	"\\x{27c5}\\x{27c6}\\x{27e6}-\\x{27ef}\\x{2983}-\\x{2998}\\x{29d8}-\\x{29db}\\x{29fc}\\x{29fd}" \
	"\\x{2cf9}-\\x{2cfc}\\x{2cfe}\\x{2cff}\\x{2d70}\\x{2e00}-\\x{2e2e}\\x{2e30}-\\x{2e42}" \
	"\\x{3001}-\\x{3003}\\x{3008}-\\x{3011}\\x{3014}-\\x{301f}\\x{3030}\\x{303d}\\x{30a0}\\x{30fb}" \
	"\\x{a4fe}\\x{a4ff}\\x{a60d}-\\x{a60f}\\x{a673}\\x{a67e}\\x{a6f2}-\\x{a6f7}\\x{a874}-\\x{a877}" \
	"\\x{a8ce}\\x{a8cf}\\x{a8f8}-\\x{a8fa}\\x{a8fc}\\x{a92e}\\x{a92f}\\x{a95f}\\x{a9c1}-\\x{a9cd}" \
	"\\x{a9de}\\x{a9df}\\x{aa5c}-\\x{aa5f}\\x{aade}\\x{aadf}\\x{aaf0}\\x{aaf1}\\x{abeb}\\x{fd3e}\\x{fd3f}" \
	"\\x{fe10}-\\x{fe19}\\x{fe30}-\\x{fe52}\\x{fe54}-\\x{fe61}\\x{fe63}\\x{fe68}\\x{fe6a}\\x{fe6b}" \
	"\\x{ff01}-\\x{ff03}\\x{ff05}-\\x{ff0a}\\x{ff0c}-\\x{ff0f}\\x{ff1a}\\x{ff1b}\\x{ff1f}\\x{ff20}" \
	"\\x{ff3b}-\\x{ff3d}\\x{ff3f}\\x{ff5b}\\x{ff5d}\\x{ff5f}-\\x{ff65}\\x{10100}-\\x{10102}\\x{1039f}" \
	"\\x{103d0}\\x{1056f}\\x{10857}\\x{1091f}\\x{1093f}\\x{10a50}-\\x{10a58}\\x{10a7f}" \
	"\\x{10af0}-\\x{10af6}\\x{10b39}-\\x{10b3f}\\x{10b99}-\\x{10b9c}\\x{11047}-\\x{1104d}" \
	"\\x{110bb}\\x{110bc}\\x{110be}-\\x{110c1}\\x{11140}-\\x{11143}\\x{11174}\\x{11175}" \
	"\\x{111c5}-\\x{111c9}\\x{111cd}\\x{111db}\\x{111dd}-\\x{111df}\\x{11238}-\\x{1123d}\\x{112a9}" \
	"\\x{114c6}\\x{115c1}-\\x{115d7}\\x{11641}-\\x{11643}\\x{1173c}-\\x{1173e}\\x{12470}-\\x{12474}" \
	"\\x{16a6e}\\x{16a6f}\\x{16af5}\\x{16b37}-\\x{16b3b}\\x{16b44}\\x{1bc9f}\\x{1da87}-\\x{1da8b}" \
	"]"
/* clang-format on */

#endif
