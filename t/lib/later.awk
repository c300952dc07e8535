# SPDX-License-Identifier: Apache-2.0
# Turns a public header into one of a later minor version: every struct that may grow has one more field at its end.
/^#define HD_ABI_MINOR/ { $0 = "#define HD_ABI_MINOR " $3 + 1 }
/^struct hd_[a-z_]+ \{/ { inside = 1; grows = $2 == "hd_plugin" }
inside && /^\tsize_t size;/ { grows = 1 }
/^};/ && inside { if (grows) print "\tvoid *later;"; inside = 0 }
{ print }
