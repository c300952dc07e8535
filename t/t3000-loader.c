/* SPDX-License-Identifier: Apache-2.0
 * The loader checks plugins.  If it accepted a faulty one, a job would call through shifted slots.  Or it would die after
 * days at the first call of a function that nobody defines.  If the message did not name the field, the plugin's author
 * could not tell what to do.  Each fault is built into its own plugin.
 */
#include <config.h>
#include "t/lib/tap.h"
#include "engine/cli/verbs.h"
#include "engine/plugin/registry.h"
#include "engine/plugin/turn.h"
#include <sys/stat.h>
#include <unistd.h>

static char tmp[] = "/tmp/heddle-t3000.XXXXXX";

static int shell(const char *fmt, ...) HD_PRINTF(1, 2);
static int shell(const char *fmt, ...)
{
	char command[2048];
	va_list v;

	va_start(v, fmt);
	vsnprintf(command, sizeof(command), fmt, v);
	va_end(v);
	return system(command);
}

/* Builds t/plugins/variant.c with these -D options as tmp/FILE.so.  Returns its path; the caller frees it. */
static char *build(const char *file, const char *defines)
{
	char *path = hd_format("%s/%s.so", tmp, file);

	if (shell("${CC:-cc} -std=gnu11 -O0 -w -fPIC -shared -fvisibility=hidden -I '%s/include' "
		  "%s "
		  "-o '%s' '%s/t/plugins/variant.c'",
		  HD_TEST_SRC, defines, path, HD_TEST_SRC))
		note("%s was not built", path);
	return path;
}

/* Returns the reason why a plugin is refused, without "plugin PATH: ". */
static const char *refusal(const char *path)
{
	static struct hd_err err;
	struct hd_plugin_entry *e = NULL;
	char *prefix = hd_format("plugin %s: ", path);
	size_t n = strlen(prefix);
	const char *text;

	memset(&err, 0, sizeof(err));
	if (!hd_registry_find(path, NULL, &e, &err))
		text = "accepted";
	else
		text = strncmp(err.text, prefix, n) ? err.text : err.text + n;
	free(prefix);
	return text;
}

static void refuses(const char *file, const char *defines, const char *fmt, ...) HD_PRINTF(3, 4);
static void refuses(const char *file, const char *defines, const char *fmt, ...)
{
	char *path = build(file, defines), text[500];
	va_list v;

	va_start(v, fmt);
	vsnprintf(text, sizeof(text), fmt, v);
	va_end(v);
	is_str(refusal(path), text, defines);
	free(path);
}

static void test_not_loadable(void)
{
	char *path, *text;

	refuses("undef", "-DV_UNDEFINED_FUNCTION", "does not load: undefined symbol: nobody_has_this");
	refuses("undata", "-DV_UNDEFINED_DATA", "does not load: undefined symbol: nobody_has_this_number");
	path = hd_format("%s/text.so", tmp);
	shell("seq 1000 > '%s'", path);
	is_str(refusal(path), "does not load: invalid ELF header", "a file that is not ELF is refused");
	shell(": > '%s'", path);
	is_str(refusal(path), "does not load: file too short", "an empty file is refused");
	free(path);
	path = build("cut", "");
	shell("truncate -s 9000 '%s'", path);
	ok(!strncmp(refusal(path), "is truncated: it has 9000 bytes, but its segments end at byte ", 62),
	   "a file that was copied in part is refused");
	free(path);
	path = hd_format("%s/absent.so", tmp);
	text = hd_format("no plugin file %s: No such file or directory", path);
	is_str(refusal(path), text, "an absent file is refused");
	free(text);
	free(path);
}

static void test_identity(void)
{
	refuses("variant", "-DV_NO_ENTRY", "exports no heddle_plugin_v1: it is not a heddle plugin");
	refuses("variant", "-DV_ENTRY=heddle_plugin_v0",
		"exports heddle_plugin_v0: abi_major is 0, older than this engine's 1: rebuild it with this engine's "
		"headers");
	refuses("variant", "-DV_ENTRY=heddle_plugin_v2",
		"exports heddle_plugin_v2: abi_major is 2, newer than this engine's 1: rebuild it with this engine's "
		"headers");
	refuses("variant", "-DV_NULL", "heddle_plugin_v1 returns NULL");
	refuses("variant", "-DV_MAGIC=0x12345678", "magic is 0x12345678, not 0x4844504c");
	refuses("variant", "-DV_MAJOR=2", "abi_major is 2, newer than this engine's 1");
	refuses("variant", "-DV_NAME='\"other\"'", "name is \"other\", the file's name says \"variant\"");
	refuses("variant", "-DV_BUILD='\"cuda=12 nccl=2\"'",
		"build asks for cuda=12, but this engine knows only minor");
	refuses("variant", "-DV_NAME='\"12345678901234567890123456789012\"'",
		"name is not terminated within its 32 bytes");
}

static void test_minor(void)
{
	refuses("variant", "-DV_BUILD='\"minor=1000\"'", "needs ABI %d.1000, this engine has %d.%d", HD_ABI_MAJOR,
		HD_ABI_MAJOR, HD_ABI_MINOR);
	refuses("variant", "-DV_BUILD='\"minor=one\"'", "build is \"minor=one\", it must be \"minor=NUMBER\"");
	refuses("variant", "-DV_BUILD='\"minor=-1\"'", "build is \"minor=-1\", it must be \"minor=NUMBER\"");
	refuses("variant", "-DV_BUILD='\"minor=0 cuda=12\"'",
		"build is \"minor=0 cuda=12\", it must be \"minor=NUMBER\"");
	refuses("variant", "-DV_MINOR=1000 -DV_MAGIC=1",
		"magic is 0x00000001, not 0x4844504c (built for ABI %d.1000, this "
		"engine has %d.%d)",
		HD_ABI_MAJOR, HD_ABI_MAJOR, HD_ABI_MINOR);
}

static void test_table(void)
{
	const size_t full = sizeof(struct hd_strategy_ops);
	char *path, *text;
	const char *why;

	refuses("variant", "-DV_TABLE=NULL",
		"has no table: neither strategy, kernels, optimizer nor families (size is %zu)",
		sizeof(struct hd_plugin));
	refuses("variant", "-DV_PLUGIN_SIZE=128", "size of its struct hd_plugin is 128, this engine's has %zu",
		sizeof(struct hd_plugin));
	refuses("variant", "-DV_SIZE=0", "strategy: size is 0, this engine's table has %zu", full);
	refuses("variant", "-DV_SIZE=60", "strategy: size is 60, this engine's table has %zu", full);
	refuses("variant", "-DV_SIZE=1048576", "strategy: size is 1048576, this engine's table has %zu", full);
	refuses("variant", "-DV_OPTIONS=NULL", "noptions is 3, options is NULL");
	refuses("variant", "-DV_OPTION_SIZE=32", "option_size is 32, this engine's is 40");
	refuses("variant", "-DV_KEY=NULL", "option 0 of 3 has no key");
	refuses("variant", "-DV_KEY='\"size\"'", "option size: this key is the engine's");
	refuses("variant", "-DV_KEY='\"file\"' -DV_MESH=NULL",
		"option file: in [plugin], this key is the engine's and names the plugin's file");
	refuses("variant", "-DV_DEFAULT='\"\"'",
		"option depth: default_value is \"\", which is 0, outside the range 1..64; NULL makes the key mandatory");
	refuses("variant", "-DV_TYPE=99", "option depth: type is 99, this engine knows 0..5");
	refuses("variant", "-DV_TYPE=HD_OPT_CHOICE", "option depth: a choice without range");
	refuses("variant", "-DV_HELP='\"how\\ndeep\"'", "option depth: help has byte 10, it must be one line");
	refuses("variant", "-DV_DEFAULT='\"4\\t\"'", "option depth: default_value has byte 9, it must be one line");
	refuses("variant", "-DV_KEY='\"two words\"'", "option \"two words\": a key has letters, digits and _");
	refuses("variant", "-DV_KEY='\"order\"'", "options 0 and 1 are both order");
	refuses("variant", "-DV_ZERO=3", "option depth: zero is 3, it must be 0");
	path = build("variant", "-DV_SIZE='sizeof(struct later)' -DV_LATER=later_slot");
	text = hd_format("strategy: the table has %zu bytes, this engine's has %zu, and byte ", full + sizeof(void *),
			 full);
	why = refusal(path);
	ok(!strncmp(why, text, strlen(text)), "an unknown slot that is not NULL is refused");
	note("%s", why);
	free(text);
	free(path);
}

static void test_approximate(void)
{
	refuses("variant", "-DV_APPROXIMATE='\"every\"'", "approximate is \"every\", it must be \"key=value ...\"");
	refuses("variant", "-DV_APPROXIMATE='\"\"'", "approximate is \"\", it must be \"key=value ...\"");
	refuses("variant", "-DV_APPROXIMATE='\"depth=1 every=1\"'",
		"approximate is \"depth=1 every=1\", but the plugin has no option every");
	refuses("variant", "-DV_APPROXIMATE='\"depth=\"'", "approximate is \"depth=\", it must be \"key=value ...\"");
}

/* A file that merely links a plugin must not pass for one. */
static void test_other_object(void)
{
	char *good = build("variant", ""), *path = hd_format("%s/borrower.so", tmp), *text;

	shell("echo 'int x;' > '%s/empty.c' && ${CC:-cc} -fPIC -shared -o '%s' '%s/empty.c' "
	      "-Wl,--no-as-needed '%s'",
	      tmp, path, tmp, good);
	text = hd_format("has no heddle_plugin_v1 of its own: the one found is in %s", good);
	is_str(refusal(path), text, "a file whose entry is in a different object is refused");
	free(text);
	free(path);
	free(good);
}

static void accepts(const char *file, const char *defines, int lower)
{
	char *path = build(file, defines);
	struct hd_err err = { .code = 0 };
	struct hd_plugin_entry *e = NULL;
	struct hd_strategy *self;

	if (!ok(!hd_registry_find(path, NULL, &e, &err), "accepted: %s %s", file, defines)) {
		note("%s", err.text);
		return;
	}
	ok(e->ops->size == sizeof(*e->ops) && !e->why && !strcmp(e->version, "0.3"), "... its entry is complete");
	is_int(e->ops->open(NULL, NULL, &self), HD_OK, "... its own slot open is called");
	is_int(e->ops->mesh(NULL, NULL, 0, 0), 7, "... and so is mesh");
	is_int(e->ops->lower(NULL, NULL), lower, "... a slot beyond the end of its table is a stub");
	e->ops->close(NULL);
	is_int(e->ops->rewrite(NULL, NULL) | e->ops->rules(NULL, NULL) | e->ops->storage(NULL, NULL) |
		       e->ops->schedule(NULL, NULL, 1),
	       HD_OK, "... missing slots are stubs");
	is_int(e->orders, 0, "... and it has no schedule of its own");
	free(path);
}

static void test_accepted(void)
{
	struct hd_plugin_entry *a = NULL, *b = NULL;
	struct hd_err err = { .code = 0 };
	char *path;

	accepts("heddle_good", "-DV_NAME='\"good\"'", 8);
	accepts("heddle_lossy", "-DV_NAME='\"lossy\"' -DV_APPROXIMATE='\"depth=1\"'", 8);
	path = hd_format("%s/heddle_lossy.so", tmp);
	ok(!hd_registry_find(path, NULL, &a, &err) && a->approximate && !strcmp(a->approximate, "depth=1"),
	   "the entry of an approximate plugin states its exact setting");
	free(path);
	accepts("future", "-DV_NAME='\"future\"' -DV_MINOR=1000", 8);
	accepts("here", "-DV_NAME='\"here\"' -DV_BUILD='\"minor=0\"'", 8);
	accepts("short", "-DV_NAME='\"short\"' -DV_SIZE='offsetof(struct hd_strategy_ops,rewrite)'", 0);
	accepts("liblong", "-DV_NAME='\"long\"' -DV_SIZE='sizeof(struct later)'", 8);
	path = hd_format("%s/heddle_good.so", tmp);
	ok(!hd_registry_find(path, NULL, &a, &err) && !a->approximate, "a plugin that states nothing is exact");
	ok(!hd_registry_find(path, NULL, &a, &err) && !hd_registry_find("heddle_good.so", tmp, &b, &err) && a == b,
	   "two instances share one plugin, by path and relative to the INI");
	ok(!chdir(tmp) && !hd_registry_find("./heddle_good.so", "/usr", &b, &err) && a == b,
	   "... or relative to the current directory");
	free(path);
}

/* Runs in its own process, since the search for a name depends on where the executable is. */
static int find_and_print(const char *name)
{
	struct hd_err err = { .code = 0 };

	if (!strcmp(name, "all"))
		name = NULL;
	if (hd_plugins_print(stdout, name, getenv("AS_JSON") != NULL, &err))
		printf("%s\n", err.text);
	return 0;
}

static char *output(const char *fmt, ...) HD_PRINTF(1, 2);
static char *output(const char *fmt, ...)
{
	static char text[8192];
	char command[1024];
	va_list v;
	FILE *f;

	va_start(v, fmt);
	vsnprintf(command, sizeof(command), fmt, v);
	va_end(v);
	f = popen(command, "r");
	text[f ? fread(text, 1, sizeof(text) - 1, f) : 0] = 0;
	if (f)
		pclose(f);
	return text;
}

static void test_names(void)
{
	char *want, *got;

	shell("mkdir -p '%s/tree/plugins/good/.libs' '%s/tree/plugins/bad/.libs' '%s/tree/t/.libs' "
	      "&& "
	      "cd '%s/tree' && cp /proc/%d/exe exe && cp exe t/exe && cp exe t/.libs/exe && "
	      "cp ../heddle_good.so plugins/good/.libs/ && cp ../undef.so plugins/bad/.libs/bad.so",
	      tmp, tmp, tmp, tmp, (int)getpid());
	want = hd_format("good 0.3, ABI %d.%d, %s/tree/plugins/good/.libs/heddle_good.so\n"
			 "key     type    default          range          meaning\n"
			 "depth   int     4                1..64          how deep\n"
			 "order   choice  (must be given)  near|far|FILE  which first\n"
			 "always  bool    no               yes|no         even where it costs\n",
			 HD_ABI_MAJOR, HD_ABI_MINOR, tmp);
	is_str(output("'%s/tree/exe' good", tmp), want, "a name is found in plugins/ next to the executable");
	got = output("'%s/tree/t/exe' good", tmp);
	ok(!strncmp(got, "no plugin \"good\"", 16), "... not one level up");
	shell(": > '%s/tree/config.status'", tmp);
	is_str(output("'%s/tree/t/exe' good", tmp), want, "... unless that is a build tree");
	is_str(output("'%s/tree/t/.libs/exe' good", tmp), want, "... also for libtool's executables");
	got = output("'%s/tree/exe' god", tmp);
	ok(strstr(got, "no plugin \"god\" (god.so or heddle_god.so) in ") && strstr(got, "; there: bad, good"),
	   "an unknown name lists the known ones");
	free(want);
	want = hd_format("plugin %s/tree/plugins/bad/.libs/bad.so: "
			 "does not load: undefined symbol: nobody_has_this\n",
			 tmp);
	is_str(output("'%s/tree/exe' bad", tmp), want, "a name whose plugin is refused says why");
	got = output("'%s/tree/exe' all", tmp);
	ok(strstr(got, "\nbad ") && strstr(got, " refused ") && strstr(got, "undefined symbol") &&
		   strstr(got, "\ngood ") && strstr(got, " accepted "),
	   "the list shows accepted and refused plugins");
	got = output("AS_JSON=1 '%s/tree/exe' good", tmp);
	ok(strstr(got, "\"accepted\": true") && strstr(got, "\"default\": null") &&
		   strstr(got, "\"help\": \"how deep\""),
	   "one plugin is printed as JSON");
	got = output("AS_JSON=1 '%s/tree/exe' all", tmp);
	ok(got[0] == '[' && strstr(got, "\"accepted\": false") && strstr(got, "\"why\": null"),
	   "the list is printed as JSON");
	free(want);
}

/* Runs slots that each take part of the time limit, and together exceed it. */
static int many_turns(void *arg)
{
	(void)arg;
	for (int i = 0; i < 14; i++) {
		hd_turn_note("strategy", "x", "x", "rules");
		usleep(250000);
	}
	hd_turn_note(NULL, NULL, NULL, NULL);
	return 7;
}

/* Loads a plugin whose entry has this code, as `heddle plugins` does.  The first line must be `want`, after the path. */
static void ends(const char *code, const char *want)
{
	char *defines = hd_format("-include stdlib.h -include signal.h -DV_CODE='%s'", code),
	     *path = build("variant", defines);
	char *text = hd_format("heddle: plugin %s: %s\n", path, want), *got;

	got = output("/proc/%d/exe %s 2>&1", (int)getpid(), path);
	if (!ok(!strncmp(got, text, strlen(text)), "%s: %s", code, want)) /* the shell may say more */
		note("%s", got);
	free(defines), free(path), free(text);
}

static int load_looping(void *arg)
{
	struct hd_plugin_entry *e;
	struct hd_err err = { 0 };

	return hd_registry_find(arg, NULL, &e, &err) < 0;
}

static void test_entry(void)
{
	char *path;

	ends("*(volatile int *)8 = 1", "crashed while it was loaded, by signal SIGSEGV (an invalid address)");
	ends("raise(7)", "crashed while it was loaded, by signal SIGBUS");
	ends("exit(0)", "called exit while it was loaded");
	path = build("variant", "-include unistd.h -DV_CODE='for (;;) pause()'");
	is_int(hd_guard_run(load_looping, path, 1), 1, "an entry that does not return ends the child");
	free(path);
}

static void test_limit(void)
{
	is_int(hd_guard_run(many_turns, NULL, 3), 7, "the time limit applies to each slot, not to all together");
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return find_and_print(argv[1]);
	if (system("${CC:-cc} --version >/dev/null 2>&1"))
		skip_all("no C compiler");
	if (!mkdtemp(tmp))
		skip_all("no temporary directory");
	test_not_loadable();
	test_identity();
	test_minor();
	test_table();
	test_approximate();
	test_other_object();
	test_accepted();
	test_names();
	test_entry();
	test_limit();
	shell("rm -rf '%s'", tmp);
	return done();
}
