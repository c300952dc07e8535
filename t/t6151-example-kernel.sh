#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A plugin with an op and its own kernels: examples/squared-relu, which its own Makefile builds from an installed prefix
# alone.  On the cpu and on the cuda device it must compute the same as a text that the engine compiles.  (The device is
# simulated: a C++ compiler compiles the .cu file.)  What [plugin NAME] refuses, it must refuse in one line.
. "${0%/*}/lib/tap.sh"
. "$src/t/lib/tiny.sh"

[ -f "$build/Makefile" ] || skip_all "no Makefile in the build folder"
command -v pkg-config >/dev/null || skip_all "no pkg-config"
root=$tmp/root
make -C "$build" install-heddleincludeHEADERS install-pkgconfigDATA DESTDIR="$root" >log 2>&1 || { tap_comment <log; skip_all "make install does not work here"; }
pc=$(find "$root" -name heddle.pc)
cp -r "$src/examples/squared-relu" relu
rm -f relu/*.o relu/*.so
ok "its Makefile builds it" env PKG_CONFIG_PATH="${pc%/*}" \
	make -s -C relu CC="${CC:-cc}" NVCC=no-nvcc CFLAGS="-O2 -Wall -Wextra -Werror"
unlike "... in which no file depends on itself, with nvcc too" "$(make -n -C relu NVCC=true 2>&1)" 'Circular'
if command -v nvcc >/dev/null; then
	cp -r relu cuda
	ok "with nvcc, it builds the kernels for GPUs too" env PKG_CONFIG_PATH="${pc%/*}" \
		make -s -C cuda CC="${CC:-cc}"
	ok "... and the plugin loads with them" heddle plugins ./cuda/squared_relu.so
else
	skip "no nvcc"
fi
sed '/^\[strategy/,$d' tiny.ini >base.ini
{ cat base.ini; printf '[plugin relu2]\nfile = ./relu/squared_relu.so\n'; } >relu.ini

# The serial definition: one text, which the engine differentiates and compiles.
sed -e 's/"squared_relu"/"text"/' -e '/^static const struct hd_kernel_ops \*const kernels/,/^};/d' \
	-e 's/, \.kernels = kernels//' -e 's|mine = g->node(p, &forward, n->ins, 1, "%s", "");|struct hd_tensor *y = g->map(p, n->ins, 1, "max(a, 0) * max(a, 0)");|' \
	-e 's|g->replace(p, n->outs\[0\], mine ? mine->outs\[0\] : NULL);|g->replace(p, n->outs[0], y);|' relu/squared_relu.c >text.c
ok "a plugin with the same function as a text is built" \
	${CC:-cc} -w -std=gnu11 -fPIC -shared -fvisibility=hidden -I "$src/include" -I relu \
	-o text.so text.c
{ cat base.ini; printf '[plugin text]\nfile = ./text.so\n'; } >text.ini

run() { # NAME CONF args...
	name=$1
	shift
	rm -f "$name.jsonl"
	heddle train "$@" --set log.metrics="$name.jsonl" --set train.optimizer=sgd --set train.lr=0.1 --set train.clip=0 \
		>"$name.out" 2>&1
}
# The losses of the last step differ by at most $3, relative.
same_loss() {
	awk -v a="$(json "$(sed -n 3p "$1.jsonl")" loss)" -v b="$(json "$(sed -n 3p "$2.jsonl")" loss)" -v t="$3" \
		'BEGIN { d = a - b; exit !(a > 0 && b > 0 && (d < 0 ? -d : d) <= t * a) }'
}
ok "the plugin trains on the cpu" run kernel relu.ini
ok "... and so does the text" run text text.ini
ok "... to the same loss" same_loss kernel text 1e-6
run gelu base.ini
same_loss kernel gelu 1e-6
[ $? -ne 0 ]
tap_result $? "... and gelu has another loss"
ok "the plugin trains in bf16" run low relu.ini --set train.precision=bf16
ok "... to a loss that is near" same_loss low text 1e-2
like "explain shows the op" "$(heddle explain relu.ini --nodes 2>&1)" 'squared_relu_d'

if [ -e "$build/heddle-cuda-sim.so" ]; then
	sim="-std=c++17 -fPIC -fvisibility=hidden -fno-exceptions -fno-rtti -fsanitize=thread -DHD_SIM -I $src -I $build -I $src/include"
	ok "its .cu file compiles for the simulated device" \
		${CXX:-c++} $sim -include "$src/t/sim/plugin.h" -x c++ -O2 -c \
		-o cu.o relu/squared_relu.cu
	${CC:-cc} -std=gnu11 -O2 -fopenmp -fPIC -fvisibility=hidden -DWITH_CUDA -I "$src/include" -c -o c.o relu/squared_relu.c
	mkdir both
	ok "... and links" ${CXX:-c++} -shared -fopenmp -o both/squared_relu.so c.o cu.o "$build/heddle-cuda-sim.so"
	HD_TEST_CUDA_MODULE=$build/heddle-cuda-sim.so
	export HD_TEST_CUDA_MODULE
	sim() { run "$@" --set relu2.file=./both/squared_relu.so --set train.device=cuda --set train.precision=fp32; }
	ok "the plugin trains on the cuda device" sim cuda relu.ini
	[ $? -eq 0 ] || tap_comment <cuda.out
	ok "... to the same loss" same_loss cuda text 1e-5
	run none relu.ini --set train.device=cuda --set train.precision=fp32
	like "without a kernel for the device it is refused" "$(messages <none.out)" \
		'squared_relu of \[relu2\]: neither device cuda nor .*/squared_relu.so has a kernel squared_relu: the plugin.s is for cpu'
	unset HD_TEST_CUDA_MODULE
else
	skip "no simulated device"
fi

one_line() { # NAME PATTERN args...
	name=$1 pattern=$2
	shift 2
	heddle check "$@" >out 2>&1
	like "$name" "$(messages <out)" "^heddle: $pattern\$"
}
sed 's/^file = .*//' relu.ini >nofile.ini
one_line "a section without a file" 'nofile.ini:[0-9]*: \[plugin relu2\]: the key file must be given' nofile.ini
one_line "a strategy in [plugin NAME]" \
	'--set relu2.file: dp has the slot mesh: it is a strategy, \[strategy relu2\] plugin = dp' relu.ini --set relu2.file=dp
one_line "a file that does not exist" \
	'--set relu2.file: no plugin file \./none\.so: No such file or directory' relu.ini --set relu2.file=./none.so
one_line "a key that it does not have" '.*relu2.depth: unknown key; .*' relu.ini --set relu2.depth=3
{ cat relu.ini; printf '[strategy relu2]\nplugin = dp\n'; } >twice.ini
one_line "a name twice" '.*\[strategy relu2\]: there is a section \[plugin relu2\]: both would be named relu2' twice.ini
printf '#include <heddle/strategy.h>\n%s\n' 'static int go(const struct hd_kernel_run *a) { return a->step->step == 2 ? -9 : 0; }
static int get(struct hd_strategy *s, struct hd_kernel_prepare *a) { (void)s; (void)a; return 0; }
static const struct hd_kernel_ops k = { sizeof(k), "k", DEVICE, get, go, 0 };
static const struct hd_kernel_ops *const ks[] = { &k, MORE 0 };
HD_PLUGIN_TABLES("bare", "1", .kernels = ks)' >bare.c
bare() { ${CC:-cc} -std=gnu11 -fPIC -shared -I "$src/include" "$@" -o bare.so bare.c; }
bare -DDEVICE='"cpu"' -DMORE=
{ cat base.ini; printf '[plugin bare]\nfile = ./bare.so\n'; } >bare.ini
ok "a plugin may have only kernels" heddle check bare.ini
printf '[strategy bare]\nplugin = ./bare.so\n' | cat base.ini - >strategy.ini
one_line "... but then it is not a strategy" \
	'strategy.ini:[0-9]*: \[strategy bare\] plugin: bare has no strategy table: it is loaded by \[plugin bare\] file = ./bare.so' strategy.ini
bare -DDEVICE='"tpu"' -DMORE=
one_line "a kernel for an unknown device" '.*kernel k: device is "tpu", this engine knows cpu, cuda and ref' bare.ini
bare -DDEVICE='"cpu"' -DMORE='&k,'
one_line "a kernel twice" '.*kernels 0 and 1 are both k of cpu' bare.ini

# A kernel that fails in step 2 ends the run with its name.
sed -e 's/^	return HD_OK;$/	return a->step->step == 2 ? -9 : HD_OK;/;t' relu/squared_relu.c >fails.c
awk '/^static int run_cpu/ { on = 1 } /^}/ { on = 0 } { if (!on) sub(/return a->step->step == 2 \? -9 : HD_OK;/, "return HD_OK;") } { print }' fails.c >f.c
mkdir fails
${CC:-cc} -std=gnu11 -fopenmp -fPIC -shared -fvisibility=hidden -I "$src/include" -I relu -o fails/squared_relu.so f.c
run fails relu.ini --set relu2.file=./fails/squared_relu.so
like "a kernel that fails is named" \
	"$(messages <fails.out)" '^heddle: .*step 2: kernel squared_relu of \[relu2\] failed with code -9$'
done_testing
