/* SPDX-License-Identifier: Apache-2.0
 * Code that all devices share: attributes as text, and names and sizes of dtypes.
 */
#include <config.h>
#include "engine/device/device.h"
#include <stdlib.h>
#include <string.h>

const char *hd_attr_text(const char *attr, const char *key)
{
	size_t n = strlen(key);

	while (attr && *attr) {
		attr += strspn(attr, " ");
		if (!strncmp(attr, key, n) && attr[n] == '=')
			return attr + n + 1;
		attr += strcspn(attr, " ");
	}
	return NULL;
}

double hd_attr_num(const char *attr, const char *key, double otherwise)
{
	const char *text = hd_attr_text(attr, key);
	char *end;
	double v = text ? strtod(text, &end) : otherwise;

	return text && end == text ? otherwise : v;
}

int64_t hd_attr_int(const char *attr, const char *key, int64_t otherwise)
{
	const char *text = hd_attr_text(attr, key);
	char *end;
	long long v = text ? strtoll(text, &end, 10) : otherwise;

	return text && end == text ? otherwise : v;
}

int hd_dtype_bytes(uint32_t dtype)
{
	/* HD_DTYPE_B1: the size of the smallest piece that has an address, which is a byte */
	return (int)(HD_BITS(dtype) + 7) / 8;
}

const char *hd_dtype_name(uint32_t dtype)
{
	static const struct {
		uint32_t dtype;
		const char *name;
	} names[] = {
		{ HD_DTYPE_F32, "f32" },   { HD_DTYPE_F64, "f64" },   { HD_DTYPE_F16, "f16" },
		{ HD_DTYPE_BF16, "bf16" }, { HD_DTYPE_I32, "i32" },   { HD_DTYPE_I64, "i64" },
		{ HD_DTYPE_U8, "u8" },     { HD_DTYPE_B1, "b1" },     { HD_DTYPE_I8, "i8" },
		{ HD_DTYPE_E4M3, "e4m3" }, { HD_DTYPE_E5M2, "e5m2" },
	};

	for (size_t i = 0; i < HD_LEN(names); i++)
		if (names[i].dtype == dtype)
			return names[i].name;
	return "unknown dtype";
}
