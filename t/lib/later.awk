# SPDX-License-Identifier: Apache-2.0
# A public header as a later minor may have it: every struct that grows has one more field at its end.
/^#define HD_ABI_MINOR/ { $0 = "#define HD_ABI_MINOR " $3 + 1 }
/^struct hd_[a-z_]+ \{/ { inside = 1; grows = $2 == "hd_plugin" }
inside && /^\tsize_t size;/ { grows = 1 }
/^};/ && inside { if (grows) print "\tvoid *later;"; inside = 0 }
{ print }
