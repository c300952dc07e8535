/* SPDX-License-Identifier: Apache-2.0
 * Reads a hostfile and finds out which of its hosts answer.
 */
#include <config.h>
#include "engine/elastic/elastic.h"
#include "engine/file/atomic_file.h"
#include "engine/file/file.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns whether s can be the name of a host or a user. Names become part of a shell command, so only letters, digits
 * and . - _ : are allowed. */
static int is_name(const char *s)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_:";

	return *s && *s != '-' && strspn(s, plain) == strlen(s);
}

struct hostfile {
	const char *path, *probe;  /* probe: NULL: ssh */
	int64_t line, slots, lost; /* the number of the current line; slots found and hosts lost up to it */
	FILE *kept;
};

/* -- the keys of a line, in all spellings that Open MPI 4 reads -------------------------------- */
struct host_keys {
	int64_t slots, most, port; /* -1: not given */
	char user[64];             /* "": not given */
};

static int answers(const struct hostfile *f, const char *host, const struct host_keys *k)
{
	/* With KILL, since the probe inherits the signals that this process blocks, SIGTERM among them. Some shells
	 * unblock them, but bash does not. */
	char *command = hd_format("exec timeout -s KILL 10 %s",
				  f->probe ? f->probe : "ssh -o BatchMode=yes -o ConnectTimeout=5");
	int status;

	if (!f->probe && k->port >= 0)
		hd_append(&command, " -p %lld", (long long)k->port);
	if (!f->probe && *k->user)
		hd_append(&command, " -l %s", k->user);
	hd_append(&command, " %s true >/dev/null 2>&1 </dev/null", host);
	status = system(command);
	free(command);
	return !status;
}

static int is_one_of(const char *key, const char *const *names)
{
	while (*names && strcmp(key, *names))
		names++;
	return *names != NULL;
}

static int read_number(const struct hostfile *f, const char *key, const char *value, int64_t *out, struct hd_err *err)
{
	if (*out >= 0)
		return hd_err_set(err, HD_EINVAL, "%s:%lld: %s is given twice", f->path, (long long)f->line, key);
	if (!*value || strlen(value) > 6 || value[strspn(value, "0123456789")])
		return hd_err_set(err, HD_EINVAL, "%s:%lld: %s = %s is not a number from 0 to 999999", f->path,
				  (long long)f->line, key, value);
	*out = atoll(value);
	return HD_OK;
}

static int read_key(const struct hostfile *f, const char *key, const char *value, struct host_keys *k,
		    struct hd_err *err)
{
	static const char *const slots[] = { "slots", "count", "cpu", NULL };
	static const char *const most[] = { "max_slots", "max-slots", "slots_max", "slots-max", NULL };
	static const char *const user[] = { "username", "user-name", NULL };

	if (is_one_of(key, slots))
		return read_number(f, key, value, &k->slots, err);
	if (is_one_of(key, most))
		return read_number(f, key, value, &k->most, err);
	if (!strcmp(key, "port"))
		return read_number(f, key, value, &k->port, err);
	if (!is_one_of(key, user))
		return hd_err_set(err, HD_EINVAL,
				  "%s:%lld: '%s' is not a key; keys are slots, max_slots, username and port", f->path,
				  (long long)f->line, key);
	if (!is_name(value))
		return hd_err_set(err, HD_EINVAL, "%s:%lld: %s = %s is not the name of a user", f->path,
				  (long long)f->line, key, value);
	snprintf(k->user, sizeof(k->user), "%s", value);
	return HD_OK;
}

/* Reads KEY = VALUE pairs, with or without blanks around the =. */
static int read_keys(const struct hostfile *f, const char *at, struct host_keys *k, struct hd_err *err)
{
	char key[64], value[64];

	for (int end = 0, n; (n = sscanf(at, " %63[^= \t\r\f\v] = %63s%n", key, value, &end)) != EOF; at += end) {
		if (n < 2)
			return hd_err_set(err, HD_EINVAL, "%s:%lld: '%s' is not KEY = VALUE", f->path,
					  (long long)f->line, n ? key : at);
		HD_TRY(read_key(f, key, value, k, err));
	}
	if (k->most >= 0 && k->most < k->slots)
		return hd_err_set(err, HD_EINVAL, "%s:%lld: max_slots = %lld is less than slots = %lld", f->path,
				  (long long)f->line, (long long)k->most, (long long)k->slots);
	return HD_OK;
}

/* -- lines ------------------------------------------------------------------------------------- */
static void add_host(struct hostfile *f, const char *name, const struct host_keys *k)
{
	int64_t slots = k->slots < 0 ? 1 : k->slots;

	if (!answers(f, name, k)) {
		hd_log(HD_LOG_WARN, "run: host %s does not answer", name);
		f->lost++;
		return;
	}
	f->slots += slots;
	fprintf(f->kept, "%s slots=%lld", name, (long long)slots);
	if (k->most >= 0)
		fprintf(f->kept, " max_slots=%lld", (long long)k->most);
	if (*k->user)
		fprintf(f->kept, " username=%s", k->user);
	if (k->port >= 0)
		fprintf(f->kept, " port=%lld", (long long)k->port);
	fprintf(f->kept, "\n");
}

static int read_line(struct hostfile *f, char *line, struct hd_err *err)
{
	struct host_keys k = { .slots = -1, .most = -1, .port = -1 };
	char name[256] = "";
	int end = 0;

	line[strcspn(line, "#")] = 0;
	if (strstr(line, "//"))
		*strstr(line, "//") = 0;
	if (sscanf(line, "%255s%n", name, &end) != 1)
		return HD_OK;
	if (!is_name(name))
		return hd_err_set(err, HD_EINVAL, "%s:%lld: '%s' is not the name of a host", f->path,
				  (long long)f->line, name);
	if (read_keys(f, line + end, &k, err) >= 0)
		add_host(f, name, &k);
	return err->code;
}

static int read_all(struct hostfile *f, char *text, struct hd_err *err)
{
	for (char *line = text, *next; line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		f->line++;
		HD_TRY(read_line(f, line, err));
	}
	return HD_OK;
}

int hd_hosts_there(const char *hostfile, const char *probe, char **kept, int64_t *slots, int64_t *lost,
		   struct hd_err *err)
{
	struct hostfile f = { .path = hostfile, .probe = probe };
	char *text = hd_file_read(hostfile, NULL, err);
	int fd, written, rc;

	*slots = *lost = 0;
	*kept = NULL;
	if (!text)
		return err->code;
	*kept = hd_file_temporary("heddle-hosts");
	fd = mkstemp(*kept);
	f.kept = fd >= 0 ? fdopen(fd, "w") : NULL;
	rc = f.kept ? read_all(&f, text, err)
		    : hd_err_set(err, HD_EIO, "%s: cannot be written: %s", *kept, strerror(errno));
	written = f.kept && !ferror(f.kept);
	if (f.kept && fclose(f.kept))
		written = 0;
	if (rc >= 0 && !written) /* a part of it would leave out hosts that answer */
		rc = hd_err_set(err, HD_EIO, "%s: cannot be written: %s", *kept, strerror(errno));
	*slots = f.slots;
	*lost = f.lost;
	free(text);
	return rc;
}
