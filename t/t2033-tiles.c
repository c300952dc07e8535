/* SPDX-License-Identifier: Apache-2.0
 * Products on the tiles of x86-64 (AMX), forced for every shape, against ref.  If this broke, linear layers would be
 * wrong on such machines.  Typical bugs are a tail of rows, columns or k that is not zero in a tile, and a
 * transposed operand packed as the other kind.  Others are sums over blocks of k that overwrite instead of adding or
 * go to a wrong block of c.  Lines that bypass the caches at a tail of c, and bits that depend on threads, are
 * further ones.
 */
#include <config.h>
#include "kernels/cpu/tiles/tiles.h"
#define PICK "ab/own:amx"
#include "t/lib/product_test.h"

int main(void)
{
	struct hd_err err = { 0 };

	hd_device_cpu()->open(1, &err);
	if (!hd_amx_here())
		skip_all("this machine has no AMX");
	for (size_t i = 0; i < HD_LEN(products); i++) {
		check_product(&products[i], HD_DTYPE_BF16, HD_DTYPE_F32);
		check_product(&products[i], HD_DTYPE_BF16, HD_DTYPE_BF16);
	}
	check_several(HD_DTYPE_BF16);
	return done();
}
