/* SPDX-License-Identifier: Apache-2.0
 * One style sheet for all pages. Each class has only one meaning, so a page may contain any of the drawings.
 *
 * Curves have .c0 to .c7; .d and .o distinguish curves of one colour. Kinds of work have .w, kinds of memory .m, and
 * classes of links .l. Areas of .w and .m touch, so any two of them differ in lightness too, for readers who do not see
 * all colours. A drawing is at least so wide that its texts have 10 pixels; it scrolls in a narrow window.
 */
#include <config.h>
#include "engine/page/html.h"

const char hd_page_style[] =
	"body{font:15px/1.45 sans-serif;max-width:980px;margin:2em auto;padding:0 1em;color:#222;background:#fff;--b:#fff}"
	"h1{font-size:1.5em;margin-bottom:.2em}h2{font-size:1.1em;margin:1.8em 0 .3em}p{margin:.2em 0}.about b{font-weight:600}"
	".wide{overflow-x:auto}table{border-collapse:collapse;margin:.6em 0;font-size:14px}"
	"td,th{padding:.2em .9em .2em 0;text-align:right;white-space:nowrap}"
	"td:first-child,th:first-child,.left{text-align:left}.left{white-space:normal}"
	".drawing,.curves{width:100%;display:block}.drawing{min-width:940px}.curves{max-width:760px;min-width:700px}"
	"text{font-size:11px;fill:currentColor}.name{font-size:12px}.grid{stroke:#8884;fill:none}.box{fill:#8881;stroke:#888}.server{stroke-dasharray:4 3}"
	".limit{stroke:currentColor;fill:none;stroke-dasharray:6 4}.over-areas{paint-order:stroke;stroke:var(--b);stroke-width:4px}"
	".line,.faint{fill:none;stroke:var(--c);stroke-width:1.8}.faint{stroke-width:1;opacity:.45}.dashed{stroke-dasharray:6 4}"
	".d1{stroke-dasharray:2 3}.d2{stroke-dasharray:10 3}.d3{stroke-dasharray:9 3 2 3}.dashed.d1{stroke-dasharray:1 5}"
	".o1{stroke-opacity:.65}.o2{stroke-opacity:.4}h1,.about{overflow-wrap:anywhere}"
	".at{fill:var(--b);stroke:var(--c);stroke-width:1.8}.f{fill:var(--c)}"
	".legend{font-size:13px}.legend span{margin-right:1.2em;display:inline-block}.legend i{display:inline-block;width:12px;height:12px;"
	"vertical-align:-1px;margin-right:.35em;background:var(--c)}.key{width:34px;height:10px;vertical-align:middle}"
	".note{opacity:.75;font-size:13px}.best{fill:#c4501b}.dot{fill:#1668b8}.over{fill:none;stroke:#888}.own{fill:none;stroke:currentColor;stroke-width:1.6}pre{overflow-x:auto}"
	".c0{--c:#1668b8}.c1{--c:#c4501b}.c2{--c:#23854a}.c3{--c:#8a4fb0}.c4{--c:#b28a00}.c5{--c:#c2397c}.c6{--c:#0f8a93}.c7{--c:#777}"
	".w0,.m0{--c:#5f8fdd}.w1,.m2{--c:#de7112}.w2,.m4{--c:#6b5208}.w3,.m3{--c:#0e4a3a}.w4{--c:#949494}.w5,.m1{--c:#a030e8}"
	".l0{--c:#1668b8}.l1{--c:#c4501b}"
	"@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818;--b:#181818}.c0{--c:#62a8ee}.c1{--c:#f08a58}"
	".c2{--c:#5cc487}.c3{--c:#c592ea}.c4{--c:#e0bb45}.c5{--c:#f07db5}.c6{--c:#52c7d1}.c7{--c:#aaa}.l0{--c:#4f97e0}.w0,.m0{--c:#b9d0f8}"
	".l1{--c:#f08a58}.w1,.m2{--c:#dc4a20}.w2,.m4{--c:#f0d23c}.w3,.m3{--c:#3fdc9c}.w4{--c:#6e6e6e}.w5,.m1{--c:#c05cff}.best{fill:#f08a58}"
	".dot{fill:#62a8ee}}";
