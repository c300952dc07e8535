/* SPDX-License-Identifier: Apache-2.0
 * Writes TensorBoard's event files. A record is framed as in TFRecord: length (8 bytes), masked CRC-32C of the length,
 * the bytes, masked CRC-32C of the bytes; all little-endian. The bytes are a protocol buffer, of which two messages
 * are written here:
 *
 *   Event:  wall_time = 1 (double)   step = 2 (int64)   file_version = 3 (string)   summary = 5 (Summary)
 *   Summary: value = 1, repeated: tag = 1 (string), simple_value = 2 (float)
 */
#include <config.h>
#include "engine/file/atomic_file.h"
#include "engine/file/log_file.h"
#include "engine/report/events.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct hd_events {
	struct hd_log_file file;
};

struct buffer {
	unsigned char *at;
	size_t n, cap;
};

uint32_t hd_crc32c(const void *bytes, size_t n)
{
	const unsigned char *b = bytes;
	uint32_t crc = 0xffffffff;

	for (size_t i = 0; i < n; i++) {
		crc ^= b[i];
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

/* Rotates the checksum and adds a constant. The data may contain checksums, and a
 * checksum over them should be of a different kind. */
static uint32_t masked(const void *bytes, size_t n)
{
	uint32_t crc = hd_crc32c(bytes, n);

	return (crc >> 15 | crc << 17) + 0xa282ead8;
}

/* -- protocol buffers -------------------------------------------------------------------------------------------- */
static void put(struct buffer *b, const void *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		b->at = hd_grow(b->at, b->n, &b->cap, 1);
		b->at[b->n++] = ((const unsigned char *)bytes)[i];
	}
}

static void put_little(struct buffer *b, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++) {
		unsigned char c = (unsigned char)(v >> 8 * i);

		put(b, &c, 1);
	}
}

static void put_varint(struct buffer *b, uint64_t v)
{
	while (v >= 128) {
		put_little(b, v | 128, 1);
		v >>= 7;
	}
	put_little(b, v, 1);
}

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static void put_key(struct buffer *b, int field, int wire)
{
	put_varint(b, (uint64_t)(field << 3 | wire));
}

static void put_bytes(struct buffer *b, int field, const void *bytes, size_t n)
{
	put_key(b, field, WIRE_BYTES);
	put_varint(b, n);
	put(b, bytes, n);
}

static void put_double(struct buffer *b, int field, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	put_key(b, field, WIRE_64);
	put_little(b, bits, 8);
}

static void put_scalar(struct buffer *summary, const char *tag, double v)
{
	struct buffer value = { .n = 0 };
	float x = (float)v;
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	put_bytes(&value, 1, tag, strlen(tag));
	put_key(&value, 2, WIRE_32);
	put_little(&value, bits, 4);
	put_bytes(summary, 1, value.at, value.n);
	free(value.at);
}

/* -- files ------------------------------------------------------------------------------------------------------- */
static int write_record(struct hd_events *e, const struct buffer *data, struct hd_err *err)
{
	struct buffer record = { .n = 0 };
	int rc;

	put_little(&record, data->n, 8);
	put_little(&record, masked(record.at, 8), 4);
	put(&record, data->at, data->n);
	put_little(&record, masked(data->at, data->n), 4);
	rc = hd_log_file_add(&e->file, record.at, record.n, err);
	free(record.at);
	return rc;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int write_version(struct hd_events *e, struct hd_err *err)
{
	static const char version[] = "brain.Event:2"; /* of the file format */
	struct buffer event = { .n = 0 };
	int rc;

	put_double(&event, 1, now());
	put_bytes(&event, 3, version, strlen(version));
	rc = write_record(e, &event, err);
	free(event.at);
	return rc;
}

int hd_events_open(const char *dir, struct hd_events **out, struct hd_err *err)
{
	char host[65] = "host", *path;
	struct hd_events *e;

	HD_TRY(hd_dir_make(dir, err));
	e = hd_alloc(sizeof(*e));
	gethostname(host, sizeof(host) - 1);
	path = hd_format("%s/events.out.tfevents.%010lld.%s.%d", dir, (long long)now(), host, (int)getpid());
	if (hd_log_file_open(path, &e->file, err) >= 0 && write_version(e, err) >= 0)
		*out = e;
	else
		hd_events_close(e, err);
	free(path);
	return err->code;
}

static void add_numbers(struct buffer *summary, const char *name, const json_t *v)
{
	if (json_is_number(v))
		put_scalar(summary, name, json_number_value(v));
	for (size_t i = 0; json_is_array(v) && i < json_array_size(v); i++) {
		char *tag = hd_format("%s/%zu", name, i);

		add_numbers(summary, tag, json_array_get(v, i));
		free(tag);
	}
}

int hd_events_write(struct hd_events *e, const json_t *numbers, struct hd_err *err)
{
	struct buffer event = { .n = 0 }, summary = { .n = 0 };
	json_t *o = (json_t *)(uintptr_t)numbers, *v;
	const char *key;
	int rc;

	json_object_foreach(o, key, v)
		if (strcmp(key, "step") && strcmp(key, "time"))
			add_numbers(&summary, key, v);
	put_double(&event, 1, json_number_value(json_object_get(numbers, "time")));
	put_key(&event, 2, WIRE_VARINT);
	put_varint(&event, (uint64_t)json_integer_value(json_object_get(numbers, "step")));
	put_bytes(&event, 5, summary.at, summary.n);
	rc = write_record(e, &event, err);
	free(event.at);
	free(summary.at);
	return rc;
}

int hd_events_close(struct hd_events *e, struct hd_err *err)
{
	int rc = e ? hd_log_file_close(&e->file, err) : HD_OK;

	free(e);
	return rc;
}
