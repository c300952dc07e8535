/* SPDX-License-Identifier: Apache-2.0
 * Matrix units compute one product of tiles, in each thread and after a fork.  If this broke, bf16 runs would crash
 * or compute wrong products.  Typical bugs are a permission that only one thread has, tiles of a wrong shape, and
 * swapped operands.
 */
#include <config.h>
#include "t/lib/tap.h"
#include "engine/base/half.h"
#include "kernels/cpu/base/amx.h"
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#if HD_AMX
/* Returns how many elements differ from c = 1 + a b.  Data are whole numbers, so sums are exact in any order. */
static int wrong(int seed)
{
	uint16_t a[16][32], b[16][32];
	float c[16][16];
	int n = 0;

	for (int i = 0; i < 16 * 32; i++) {
		a[i / 32][i % 32] = hd_bf16_of((float)((i * 7 + seed) % 19 - 9));
		b[i / 32][i % 32] = hd_bf16_of((float)((i * 5 + seed) % 23 - 11));
	}
	for (int i = 0; i < 256; i++)
		c[i / 16][i % 16] = 1;
	hd_amx_begin();
	HD_TILE_LOAD(0, c, 64);
	HD_TILE_LOAD(1, a, 64);
	HD_TILE_LOAD(2, b, 64);
	HD_TILE_DPBF16(0, 1, 2);
	HD_TILE_STORE(0, c, 64);
	hd_amx_end();
	for (int i = 0; i < 16; i++)
		for (int j = 0; j < 16; j++) {
			float want = 1;

			for (int k = 0; k < 32; k++)
				want += hd_of_bf16(a[i][k]) * hd_of_bf16(b[k / 2][2 * j + k % 2]);
			n += c[i][j] != want;
		}
	return n;
}

int main(void)
{
	int bad = 0, status = 1;
	pid_t child;

	if (!hd_amx_allowed())
		skip_all("this machine has no AMX with bf16");
	is_int(wrong(1), 0, "a product of two tiles is exact");
#pragma omp parallel for num_threads(3) reduction(+ : bad)
	for (int i = 0; i < 30; i++)
		bad += wrong(i);
	is_int(bad, 0, "... also in three threads");
	child = fork();
	if (!child)
		_exit(!hd_amx_allowed() || wrong(3));
	waitpid(child, &status, 0);
	is_int(status, 0, "... and in a child process");
	return done();
}
#else
int main(void)
{
	is_int(hd_amx_allowed(), 0, "AMX is not allowed where its code was not compiled");
	return done();
}
#endif
