/* SPDX-License-Identifier: Apache-2.0
 * Which hosts of a hostfile are there.
 */
#include <config.h>
#include "engine/elastic/elastic.h"
#include "engine/file/atomic_file.h"
#include "engine/file/file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int answers(const char *probe, const char *host)
{
	char *command = hd_format("timeout 10 %s %s true >/dev/null 2>&1 </dev/null", probe, host);
	int status = system(command);

	free(command);
	return !status;
}

/* Names go into a command: letters, digits, dots, dashes. */
static int is_name(const char *s)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_:";

	return *s && *s != '-' && strspn(s, plain) == strlen(s);
}

static int64_t slots_of(const char *line)
{
	const char *at = strstr(line, "slots=");

	return at && atoll(at + 6) > 0 ? atoll(at + 6) : 1;
}

static int read_line(char *line, const char *hostfile, const char *probe, FILE *out, int64_t *slots, int64_t *lost,
		     struct hd_err *err)
{
	char name[256] = "";

	line[strcspn(line, "#\n")] = 0;
	if (sscanf(line, "%255s", name) != 1)
		return HD_OK;
	if (!is_name(name))
		return hd_err_set(err, HD_EINVAL, "%s: '%s' is no name of a host", hostfile, name);
	if (!answers(probe, name)) {
		hd_log(HD_LOG_WARN, "run: host %s does not answer", name);
		++*lost;
		return HD_OK;
	}
	*slots += slots_of(line);
	fprintf(out, "%s slots=%lld\n", name, (long long)slots_of(line));
	return HD_OK;
}

static int read_all(char *text, const char *hostfile, const char *probe, FILE *out, int64_t *slots, int64_t *lost,
		    struct hd_err *err)
{
	for (char *line = text, *next; line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		HD_TRY(read_line(line, hostfile, probe, out, slots, lost, err));
	}
	return HD_OK;
}

int hd_hosts_there(const char *hostfile, const char *probe, char **kept, int64_t *slots, int64_t *lost,
		   struct hd_err *err)
{
	char *text = hd_file_read(hostfile, NULL, err);
	FILE *out;
	int fd, rc;

	*slots = *lost = 0;
	*kept = NULL;
	if (!text)
		return err->code;
	*kept = hd_file_temporary("heddle-hosts");
	fd = mkstemp(*kept);
	out = fd >= 0 ? fdopen(fd, "w") : NULL;
	rc = out ? read_all(text, hostfile, probe, out, slots, lost, err)
		 : hd_err_set(err, HD_EIO, "%s: cannot be written", *kept);
	if (out)
		fclose(out);
	free(text);
	return rc;
}
