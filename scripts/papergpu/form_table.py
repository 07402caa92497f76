"""The one table of what is executed: every form of every instruction, by its pattern.

A row is its name, opcode and modifiers in order, its operands, the least PTX version and the least
target; the comment above it is the chapter of the PTX ISA that it follows. A modifier stands for
itself; `a|b` is one of them; a `?` behind says that it may be left out; `name=` before it gives it
a name. Operands are types, the result first: `t` and whatever else is named before are what that
modifier says; `preds` are the two predicates `p|q`, `bool` a b32 and a predicate, `imm8` a constant
of 8 bits. What is no function of one thread's operands has none. A row that ends in a backslash
goes on in the next line.
"""

from __future__ import annotations

INTEGERS = "u16|u32|u64|s16|s32|s64"
ROUNDINGS = "r=rn|rz|rm|rp"
COMPARISONS = "c=eq|ne|lt|le|gt|ge|lo|ls|hi|hs"
ALIKE, SIGNED = "c=eq|ne", "c=eq|ne|lt|le|gt|ge"
PROPERTIES = "finite|infinite|number|notanumber|normal|subnormal"
BOOLEAN, WHOLES = "o=and|or|xor", "i=rni|rzi|rmi|rpi"
EIGHTS, SIXES = "e4m3x2|e5m2x2", "e2m3x2|e3m2x2"
FOURS = "e4m3x4|e5m2x4|e2m3x4|e3m2x4|e2m1x4"
ORDERED = "c=eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"
STORED = "b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"
SCOPES, ORDERS = "cta|cluster|gpu|sys", "relaxed|acquire|release|acq_rel"
WHERE = "global|shared|shared::cta|shared::cluster"
ATOMICS = "and|or|xor|cas|exch|add|inc|dec|min|max"
ATOMIC_TYPES = "b16|b32|b64|u32|u64|s32|s64|f16|f16x2|bf16|bf16x2|f32|f64"
EVICT = "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"
FIELDS = "|".join(("rank", "box_dim", "global_dim", "element_stride", "elemtype",
                   "interleave_layout", "swizzle_mode", "swizzle_atomicity",
                   "fill_mode"))  # fmt: skip
POLICY = "L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged"
DIMENSIONS, IMAGES = "1d|2d|3d|4d|5d", "3d|4d|5d"
PREFETCH = "L2::64B|L2::128B|L2::256B"
GROUPS = "cta_group::1|cta_group::2"
MOVED = "16x64b|16x128b|16x256b|16x32bx2|32x32b"
TIMES = "x1|x2|x4|x8|x16|x32|x64|x128"
KINDS = "kind::f16|kind::tf32|kind::f8f6f4|kind::i8"
SCALED = "kind::mxf8f6f4|kind::mxf4|kind::mxf4nvf4"
VECTORS = "scale_vec::1X|scale_vec::2X|scale_vec::4X|block16|block32"
OPERATIONS = ("fill", "use", "lastuse", "discard")
COLLECTED = "|".join(f"collector::a::{one}" for one in OPERATIONS)
HELD = "|".join(f"collector::b{number}::{one}" for number in range(4) for one in OPERATIONS)
I4, I8 = "s4|u4", "s8|u8"
SMALL, SIZES = "e4m3|e5m2|e2m3|e3m2|e2m1", "scale_vec::1X|scale_vec::2X|scale_vec::4X"
FP8, WMMA = "e4m3|e5m2", "m16n16k16|m32n8k16|m8n32k16"
LAYOUTS = "la=row|col lb=row|col"
HINT, BYTES = "f=L2::cache_hint?", "mbarrier::complete_tx::bytes"
STORE, ACROSS = f"global shared::cta bulk_group {HINT}", f"shared::cluster shared::cta {BYTES}"
TARGET, CAST = "d=shared::cluster|shared::cta", f"multicast::cluster? g={GROUPS}?"
MEMORY, ROWS = "ss=global|shared|shared::cta?", "ss=shared|shared::cta?"
SPACES = "s=global|shared|shared::cta|shared::cluster|local|const|param|param::entry"
RESTRICT = "s=sync_restrict::shared::cta|sync_restrict::shared::cluster"
SECOND = "L2::evict_first|L2::evict_unchanged"
VALUES = f"noftz? v=v2|v4|v8? t={ATOMIC_TYPES}"
# The shapes of a warpgroup's products, by their depth.
K8, K16, K32, K64, K256 = ("|".join(f"m64n{n}k{k}" for n in range(8, 257, 8))
                           for k in (8, 16, 32, 64, 256))  # fmt: skip

TABLE = f"""
# Integer arithmetic instructions
add.integer     v=add|sub t={INTEGERS}                      : t t t : 1.0 : 50
add.saturate    v=add|sub sat s32                           : s32 s32 s32 : 1.0 : 50
add.pair        add t=u16x2|s16x2                           : t t t : 8.0 : 90
mul.part        mul h=lo|hi t={INTEGERS}                    : t t t : 1.0 : 50
mul.wide        mul wide t=u16|s16|u32|s32                  : wide t t : 1.0 : 50
mad.part        mad h=lo|hi t={INTEGERS}                    : t t t t : 1.0 : 50
mad.wide        mad wide t=u16|s16|u32|s32                  : wide t t wide : 1.0 : 50
mad.saturate    mad hi sat s32                              : s32 s32 s32 s32 : 1.0 : 50
mul24           mul24 h=lo|hi t=u32|s32                     : t t t : 1.0 : 50
mad24           mad24 h=lo|hi t=u32|s32                     : t t t t : 1.0 : 50
mad24.saturate  mad24 hi sat s32                            : s32 s32 s32 s32 : 1.0 : 50
sad             sad t={INTEGERS}                            : t t t t : 1.0 : 50
div.integer     v=div|rem t={INTEGERS}                      : t t t : 1.0 : 50
neg.integer     v=neg|abs t=s16|s32|s64                     : t t : 1.0 : 50
min.integer     v=min|max t={INTEGERS}                      : t t t : 1.0 : 50
min.relu        v=min|max relu t=s32|s16x2                  : t t t : 8.0 : 90
min.relu.late   v=min|max t=s32|s16x2 relu                  : t t t : 8.0 : 90
min.pair        v=min|max t=u16x2|s16x2                     : t t t : 8.0 : 90
popc            v=popc|clz t=b32|b64                        : u32 t : 2.0 : 50
bfind           bfind shiftamt? t=u32|u64|s32|s64           : u32 t : 2.0 : 50
fns             fns t=b32                                   : t t b32 s32 : 6.0 : 50
brev            brev t=b32|b64                              : t t : 2.0 : 50
bfe             bfe t=u32|u64|s32|s64                       : t t u32 u32 : 2.0 : 50
bfi             bfi t=b32|b64                               : t t t u32 u32 : 2.0 : 50
szext           szext m=clamp|wrap t=u32|s32                : t t u32 : 7.6 : 70
bmsk            bmsk m=clamp|wrap t=b32                     : t u32 u32 : 7.6 : 70
dp4a            dp4a x=u32|s32 y=u32|s32                    : dot x y dot : 5.0 : 61
dp2a            dp2a h=lo|hi x=u32|s32 y=u32|s32            : dot x y dot : 5.0 : 61

# Video instructions, as NVRTC writes them
vabsdiff        v=vabsdiff2|vabsdiff4 d=u32 x=u32 y=u32 add? : u32 u32 u32 u32 : 3.0 : 50

# Extended-precision integer arithmetic instructions
add.carry       add cc t=u32|s32|u64|s64                    : t t t : 1.2 : 50
addc            addc cc? t=u32|s32|u64|s64                  : t t t : 1.2 : 50
sub.borrow      sub cc t=u32|s32|u64|s64                    : t t t : 1.2 : 50
subc            subc cc? t=u32|s32|u64|s64                  : t t t : 1.2 : 50
mad.carry       mad h=lo|hi cc t=u32|s32|u64|s64            : t t t t : 3.0 : 50
madc            madc h=lo|hi cc? t=u32|s32|u64|s64          : t t t t : 3.0 : 50

# Floating-point instructions
add.float       v=add|sub|mul {ROUNDINGS}? ftz? sat? t=f32  : t t t : 1.0 : 50
add.floats      v=add|sub|mul {ROUNDINGS}? ftz? t=f32x2     : t t t : 8.6 : 100
add.double      v=add|sub|mul {ROUNDINGS}? t=f64            : t t t : 1.0 : 50
fma.float       fma {ROUNDINGS} ftz? sat? t=f32             : t t t t : 2.0 : 50
fma.floats      fma {ROUNDINGS} ftz? t=f32x2                : t t t t : 8.6 : 100
fma.double      v=fma|mad {ROUNDINGS} t=f64                 : t t t t : 1.4 : 50
mad.float       mad {ROUNDINGS} ftz? sat? t=f32             : t t t t : 2.0 : 50
div.float       div {ROUNDINGS} ftz? t=f32                  : t t t : 1.4 : 50
div.double      div {ROUNDINGS} t=f64                       : t t t : 1.4 : 50
div.approximate div k=full|approx ftz? t=f32                : t t t : 1.4 : 50
rcp.float       v=rcp|sqrt {ROUNDINGS} ftz? t=f32           : t t : 1.4 : 50
rcp.double      v=rcp|sqrt {ROUNDINGS} t=f64                : t t : 1.4 : 50
rcp.approximate v=rcp|sqrt|rsqrt|lg2|ex2 k=approx ftz? t=f32 : t t : 1.0 : 50
rcp.gross       rcp k=approx ftz t=f64                      : t t : 2.1 : 50
rsqrt.double    rsqrt k=approx t=f64                        : t t : 1.4 : 50
rsqrt.gross     rsqrt k=approx ftz t=f64                    : t t : 4.0 : 50
sin             v=sin|cos k=approx ftz? t=f32               : t t : 1.4 : 50
tanh            tanh k=approx t=f32                         : t t : 7.0 : 75
neg.float       v=neg|abs ftz? t=f32                        : t t : 1.0 : 50
neg.double      v=neg|abs t=f64                             : t t : 1.0 : 50
min.float       v=min|max ftz? NaN? t=f32                   : t t t : 1.0 : 50
min.xorsign     v=min|max ftz? NaN? xorsign abs t=f32       : t t t : 7.2 : 86
min.double      v=min|max t=f64                             : t t t : 1.0 : 50
min.three       v=min|max ftz? NaN? abs? t=f32              : t t t t : 8.8 : 100
testp           testp o={PROPERTIES} t=f32|f64              : pred t : 2.0 : 50
copysign        copysign t=f32|f64                          : t t t : 2.0 : 50

# Half precision floating-point instructions
add.half        v=add|sub|mul r=rn? ftz? sat? t=f16|f16x2   : t t t : 4.2 : 53
add.brain       v=add|sub|mul r=rn? t=bf16|bf16x2           : t t t : 7.8 : 90
fma.half        fma r=rn ftz? sat? t=f16|f16x2              : t t t t : 4.2 : 53
fma.half.relu   fma r=rn ftz? relu t=f16|f16x2              : t t t t : 7.0 : 80
fma.brain       fma r=rn relu? t=bf16|bf16x2                : t t t t : 7.0 : 80
neg.half        neg ftz? t=f16|f16x2                        : t t : 6.0 : 53
neg.brain       v=neg|abs t=bf16|bf16x2                     : t t : 7.0 : 80
abs.half        abs ftz? t=f16|f16x2                        : t t : 6.5 : 53
min.half        v=min|max ftz? NaN? t=f16|f16x2             : t t t : 7.0 : 80
min.half.xorsign v=min|max ftz? NaN? xorsign abs t=f16|f16x2 : t t t : 7.2 : 86
min.brain       v=min|max NaN? t=bf16|bf16x2                : t t t : 7.0 : 80
min.brain.xorsign v=min|max NaN? xorsign abs t=bf16|bf16x2  : t t t : 7.2 : 86
tanh.half       tanh k=approx t=f16|f16x2|bf16|bf16x2       : t t : 7.0 : 75
ex2.half        ex2 k=approx t=f16|f16x2                    : t t : 7.0 : 75
ex2.brain       ex2 k=approx ftz t=bf16|bf16x2              : t t : 7.8 : 90

# Mixed precision floating-point instructions
add.mixed       v=add|sub {ROUNDINGS}? sat? d=f32 t=f16|bf16 : d t d : 8.6 : 100
fma.mixed       fma {ROUNDINGS} sat? d=f32 t=f16|bf16       : d t t d : 8.6 : 100

# Comparison and selection instructions
setp.integer    setp {ALIKE} t=b16|b32|b64                  : pred t t : 1.0 : 50
setp.signed     setp {SIGNED} t=s16|s32|s64                 : pred t t : 1.0 : 50
setp.unsigned   setp {COMPARISONS} t=u16|u32|u64            : pred t t : 1.0 : 50
setp.float      setp {ORDERED} ftz? t=f32                   : pred t t : 1.0 : 50
setp.double     setp {ORDERED} t=f64                        : pred t t : 1.0 : 50
setp.integer.with setp {ALIKE} {BOOLEAN} t=b16|b32|b64      : pred t t pred : 1.0 : 50
setp.signed.with setp {SIGNED} {BOOLEAN} t=s16|s32|s64      : pred t t pred : 1.0 : 50
setp.unsigned.with setp {COMPARISONS} {BOOLEAN} t=u16|u32|u64 : pred t t pred : 1.0 : 50
setp.float.with setp {ORDERED} {BOOLEAN} ftz? t=f32         : pred t t pred : 1.0 : 50
setp.double.with setp {ORDERED} {BOOLEAN} t=f64             : pred t t pred : 1.0 : 50
set.bits        set {ALIKE} d=u32|s32|f32 t=b16|b32|b64     : d t t : 1.0 : 50
set.signed      set {SIGNED} d=u32|s32|f32 t=s16|s32|s64    : d t t : 1.0 : 50
set.unsigned    set {COMPARISONS} d=u32|s32|f32 t=u16|u32|u64 : d t t : 1.0 : 50
set.float       set {ORDERED} ftz? d=u32|s32|f32 t=f32      : d t t : 1.0 : 50
set.double      set {ORDERED} d=u32|s32|f32 t=f64           : d t t : 1.0 : 50
set.bits.with   set {ALIKE} {BOOLEAN} d=u32|s32|f32 t=b16|b32|b64 : d t t pred : 1.0 : 50
set.signed.with set {SIGNED} {BOOLEAN} d=u32|s32|f32 t=s16|s32|s64 : d t t pred : 1.0 : 50
set.unsigned.with set {COMPARISONS} {BOOLEAN} d=u32|s32|f32 t=u16|u32|u64 : d t t pred : 1.0 : 50
set.float.with  set {ORDERED} {BOOLEAN} ftz? d=u32|s32|f32 t=f32 : d t t pred : 1.0 : 50
set.double.with set {ORDERED} {BOOLEAN} d=u32|s32|f32 t=f64 : d t t pred : 1.0 : 50
selp            selp t=b16|b32|b64|f32|f64|{INTEGERS}       : t t t pred : 1.0 : 50
slct            slct d=b16|b32|b64|f32|f64|{INTEGERS} t=s32 : d d d t : 1.0 : 50
slct.float      slct ftz? d=b16|b32|b64|f32|f64|{INTEGERS} t=f32 : d d d t : 1.0 : 50

# Half precision comparison instructions
setp.half       setp {ORDERED} ftz? t=f16                   : pred t t : 4.2 : 53
setp.halves     setp {ORDERED} ftz? t=f16x2                 : preds t t : 4.2 : 53
setp.brain      setp {ORDERED} t=bf16                       : pred t t : 7.8 : 90
setp.brains     setp {ORDERED} t=bf16x2                     : preds t t : 7.8 : 90
setp.half.with  setp {ORDERED} {BOOLEAN} ftz? t=f16         : pred t t pred : 4.2 : 53
setp.halves.with setp {ORDERED} {BOOLEAN} ftz? t=f16x2      : preds t t pred : 4.2 : 53
setp.brain.with setp {ORDERED} {BOOLEAN} t=bf16             : pred t t pred : 7.8 : 90
setp.brains.with setp {ORDERED} {BOOLEAN} t=bf16x2          : preds t t pred : 7.8 : 90
set.half        set {ORDERED} ftz? d=f16|u16|s16|u32|s32 t=f16 : d t t : 4.2 : 53
set.half.with   set {ORDERED} {BOOLEAN} ftz? d=f16|u16|s16|u32|s32 t=f16 : d t t pred : 4.2 : 53
set.halves      set {ORDERED} ftz? d=f16x2|u32|s32 t=f16x2  : d t t : 4.2 : 53
set.halves.with set {ORDERED} {BOOLEAN} ftz? d=f16x2|u32|s32 t=f16x2 : d t t pred : 4.2 : 53
set.brain       set {ORDERED} d=bf16|u16|s16|u32|s32 t=bf16 : d t t : 7.8 : 90
set.brain.with  set {ORDERED} {BOOLEAN} d=bf16|u16|s16|u32|s32 t=bf16 : d t t pred : 7.8 : 90
set.brains      set {ORDERED} d=bf16x2|u32|s32 t=bf16x2     : d t t : 7.8 : 90
set.brains.with set {ORDERED} {BOOLEAN} d=bf16x2|u32|s32 t=bf16x2 : d t t pred : 7.8 : 90

# Logic and shift instructions
logic           o=and|or|xor t=pred|b16|b32|b64             : t t t : 1.0 : 50
not             not t=pred|b16|b32|b64                      : t t : 1.0 : 50
cnot            cnot t=b16|b32|b64                          : t t : 1.0 : 50
lop3            lop3 t=b32                                  : t t t t imm8 : 4.3 : 50
lop3.with       lop3 o=and|or t=b32                         : bool t t t imm8 pred : 8.2 : 70
shl             shl t=b16|b32|b64                           : t t u32 : 1.0 : 50
shr             shr t=b16|b32|b64|{INTEGERS}                : t t u32 : 1.0 : 50
shf             shf s=l|r m=clamp|wrap t=b32                : t t t u32 : 3.1 : 50
prmt            prmt t=b32                                  : t t t b32 : 2.0 : 50
prmt.mode       prmt t=b32 m=f4e|b4e|rc8|ecl|ecr|rc16       : t t t b32 : 2.0 : 50

# Data movement and conversion instructions
mov             mov t=pred|b16|b32|b64|f32|f64|{INTEGERS}   : t t : 1.0 : 50
cvt.integer     cvt d=u8|s8|{INTEGERS} t=u8|s8|{INTEGERS}   : d t : 1.0 : 50
cvt.sat.u8      cvt sat d=u8 t=s8|{INTEGERS}                : d t : 1.0 : 50
cvt.sat.s8      cvt sat d=s8 t=u8|{INTEGERS}                : d t : 1.0 : 50
cvt.sat.u16     cvt sat d=u16 t=s8|s16|s32|s64|u32|u64      : d t : 1.0 : 50
cvt.sat.s16     cvt sat d=s16 t=s32|s64|u16|u32|u64         : d t : 1.0 : 50
cvt.sat.u32     cvt sat d=u32 t=s8|s16|s32|s64|u64          : d t : 1.0 : 50
cvt.sat.s32     cvt sat d=s32 t=s64|u32|u64                 : d t : 1.0 : 50
cvt.sat.u64     cvt sat d=u64 t=s8|s16|s32|s64              : d t : 1.0 : 50
cvt.sat.s64     cvt sat d=s64 t=u64                         : d t : 1.0 : 50
cvt.from        cvt {ROUNDINGS} d=f16|f32|f64 t=u8|s8|{INTEGERS} : d t : 1.0 : 50
cvt.from.brain  cvt {ROUNDINGS} d=bf16 t={INTEGERS}         : d t : 7.8 : 90
cvt.to          cvt {WHOLES} sat? d=u8|s8|{INTEGERS} t=f16|f32|f64 : d t : 1.0 : 50
cvt.to.flush    cvt {WHOLES} ftz sat? d=u8|s8|{INTEGERS} t=f32 : d t : 1.0 : 50
cvt.to.of.brain cvt {WHOLES} d={INTEGERS} t=bf16            : d t : 7.8 : 90
cvt.same        cvt {WHOLES}? sat? d=f16 t=f16              : d t : 1.0 : 53
cvt.same.brain  cvt {WHOLES} d=bf16 t=bf16                  : d t : 7.8 : 90
cvt.same.float  cvt {WHOLES}? ftz? sat? d=f32 t=f32         : d t : 1.0 : 50
cvt.same.double cvt {WHOLES}? sat? d=f64 t=f64              : d t : 1.0 : 50
cvt.wider       cvt sat? d=f64 t=f16                        : d t : 1.0 : 53
cvt.wider.brain cvt d=f32|f64 t=bf16                        : d t : 7.8 : 90
cvt.wider.flush cvt ftz? sat? d=f64 t=f32                   : d t : 1.0 : 50
cvt.wider.half  cvt ftz? sat? d=f32 t=f16                   : d t : 1.0 : 53
cvt.narrower    cvt {ROUNDINGS} ftz? sat? d=f16 t=f32       : d t : 1.0 : 53
cvt.narrower.double cvt {ROUNDINGS} sat? d=f16 t=f64        : d t : 1.0 : 53
cvt.narrower.float cvt {ROUNDINGS} ftz? sat? d=f32 t=f64    : d t : 1.0 : 50
cvt.to.brain    cvt {ROUNDINGS} d=bf16 t=f32                : d t : 7.0 : 80
cvt.to.brain.double cvt {ROUNDINGS} d=bf16 t=f64            : d t : 7.8 : 90
cvt.between     cvt {ROUNDINGS}? d=bf16 t=f16               : d t : 7.8 : 90
cvt.between.back cvt {ROUNDINGS}? d=f16 t=bf16              : d t : 7.8 : 90
cvt.clamped     cvt r=rn|rz relu? satfinite? d=f16|bf16 t=f32 : d t : 7.0 : 80
cvt.pair        cvt r=rn|rz relu? satfinite? d=f16x2|bf16x2 f32 : d f32 f32 : 7.0 : 80
cvt.random      cvt r=rs relu? satfinite? d=f16x2|bf16x2 f32 : d f32 f32 b32 : 8.7 : 100
cvt.random.late cvt r=rs satfinite relu d=f16x2|bf16x2 f32  : d f32 f32 b32 : 8.7 : 100
cvt.random.four cvt r=rs relu? satfinite d={FOURS} f32      : d f32 f32 f32 f32 b32 : 8.7 : 100
cvt.random.four.late cvt r=rs satfinite relu d={FOURS} f32  : d f32 f32 f32 f32 b32 : 8.7 : 100
cvt.tensor.away cvt r=rna satfinite? d=tf32 f32             : d f32 : 7.0 : 80
cvt.tensor      cvt r=rn|rz satfinite? relu? d=tf32 f32     : d f32 : 7.8 : 90
cvt.small       cvt r=rn satfinite relu? d={EIGHTS}|{SIXES}|e2m1x2 f32 : d f32 f32 : 7.8 : 89
cvt.small.half  cvt r=rn satfinite relu? d={EIGHTS} f16x2   : d f16x2 : 7.8 : 89
cvt.from.small  cvt r=rn relu? d=f16x2 t={EIGHTS}|{SIXES}|e2m1x2 : d t : 7.8 : 89
cvt.scale       cvt r=rz|rp satfinite? d=ue8m0x2 f32        : d f32 f32 : 8.6 : 100
cvt.scale.brain cvt r=rz|rp satfinite? d=ue8m0x2 t=bf16x2   : d t : 8.6 : 100
cvt.from.scale  cvt r=rn d=bf16x2 t=ue8m0x2                 : d t : 8.6 : 100
cvt.pack        cvt pack sat d=u16|s16 t=s32                : b32 t t : 6.5 : 72
cvt.pack.onto   cvt pack sat d=u2|s2|u4|s4|u8|s8 t=s32 b32  : b32 t t b32 : 6.5 : 72
mov.packed      mov t=b16|b32|b64|b128                      : 1.0 : 50

# Data movement: memory
ld ld o=weak|relaxed|acquire|volatile|mmio? scope={SCOPES}? \\
    s=param|param::entry|param::func|global|shared|shared::cta|shared::cluster|local|const? nc? \\
    cache=ca|cg|cs|lu|cv? e={EVICT}? {HINT} p={PREFETCH}? v=v2|v4|v8? t={STORED} : 1.0 : 50
ld.swapped ld s=global|shared|shared::cta scope={SCOPES} o=relaxed|acquire v=v2|v4|v8? t={STORED} \\
    : 6.0 : 70
ldu             ldu s=global? v=v2|v4? t={STORED}           : 2.0 : 50
st st o=weak|relaxed|release|volatile|mmio? scope={SCOPES}? \\
    s=param|param::func|global|shared|shared::cta|shared::cluster|local? cache=wb|cg|cs|wt? \\
    e={EVICT}? {HINT} v=v2|v4|v8? t={STORED} : 1.0 : 50
st.swapped st s=global|shared|shared::cta scope={SCOPES} o=relaxed|release v=v2|v4|v8? t={STORED} \\
    : 6.0 : 70
atom atom o={ORDERS}? scope={SCOPES}? s={WHERE}? scope2={SCOPES}? o2={ORDERS}? scope4={SCOPES}? \\
    a={ATOMICS} scope3={SCOPES}? noftz? {HINT} v=v2|v4|v8? t={ATOMIC_TYPES} : 1.1 : 50
atom.late       atom s={WHERE} o={ORDERS}? a={ATOMICS} {VALUES} : 1.1 : 50
atom.turned     atom s={WHERE} o={ORDERS} scope={SCOPES} a={ATOMICS} {VALUES} : 6.0 : 70
red red o=relaxed|release? scope={SCOPES}? s={WHERE}? scope2={SCOPES}? o2=relaxed|release? \\
    scope4={SCOPES}? a={ATOMICS} scope3={SCOPES}? noftz? {HINT} v=v2|v4|v8? t={ATOMIC_TYPES} : \\
    1.2 : 50
cvta            cvta to? {SPACES} t=u32|u64                 : 2.0 : 50
isspacep        isspacep {SPACES}                           : 2.0 : 50
atom.swapped atom s={WHERE}? a={ATOMICS} o={ORDERS} scope={SCOPES}? noftz? t={ATOMIC_TYPES} : 1.1 \\
    : 50
red.swapped red s={WHERE}? a={ATOMICS} o=relaxed|release scope={SCOPES}? noftz? t={ATOMIC_TYPES} \\
    : 1.2 : 50
mapa            mapa shared::cluster? t=u32|u64             : 7.8 : 90
getctarank      getctarank shared::cluster? t=u32|u64       : 7.8 : 90
prefetch prefetch s=global|local? l=L1|L2|L2::evict_last|L2::evict_normal|tensormap : 2.0 : 50
createpolicy    createpolicy fractional p={POLICY} q={SECOND}? b64 : 7.4 : 80
createpolicy.range createpolicy range global? p={POLICY} q={SECOND}? b64 : 7.4 : 80
createpolicy.cvt createpolicy cvt L2 b64                    : 7.4 : 80
prefetchu       prefetchu L1                                : 2.0 : 50
discard         discard s=global? l=L2                      : 7.4 : 80
applypriority   applypriority s=global? l=L2::evict_normal  : 7.4 : 80

# Data movement: asynchronous copies
cp.async        cp async c=ca|cg s=shared|shared::cta global {HINT} p={PREFETCH}? : 7.0 : 80
cp.async.group  cp async k=commit_group|wait_group|wait_all : 7.0 : 80
cp.async.mbarrier cp async mbarrier arrive noinc? s=shared|shared::cta? b64 : 7.0 : 80
bulk.load       cp async bulk {TARGET} global {BYTES} multicast::cluster? {HINT} : 8.0 : 90
bulk.across     cp async bulk {ACROSS}                      : 8.0 : 90
bulk.store      cp async bulk {STORE} cp_mask?              : 8.0 : 90
bulk.prefetch   cp async bulk prefetch L2 global {HINT}     : 8.0 : 90
bulk.group      cp async bulk k=commit_group|wait_group read? : 8.0 : 90
bulk.reduce     cp reduce async bulk {STORE} a=and|or|xor t=b32|b64 : 8.0 : 90
bulk.reduce.add cp reduce async bulk {STORE} a=add t=u32|s32|u64|f32|f64 : 8.0 : 90
bulk.reduce.half cp reduce async bulk {STORE} a=add noftz t=f16|bf16 : 8.0 : 90
bulk.reduce.min cp reduce async bulk {STORE} a=min|max t=u32|s32|u64|s64|f16|bf16 : 8.0 : 90
bulk.reduce.inc cp reduce async bulk {STORE} a=inc|dec t=u32 : 8.0 : 90
bulk.reduce.across cp reduce async bulk {ACROSS} a=and|or|xor t=b32 : 8.0 : 90
bulk.reduce.across.add cp reduce async bulk {ACROSS} a=add t=u32|s32|u64 : 8.0 : 90
bulk.reduce.across.min cp reduce async bulk {ACROSS} a=min|max t=u32|s32 : 8.0 : 90
bulk.reduce.across.inc cp reduce async bulk {ACROSS} a=inc|dec t=u32 : 8.0 : 90
tensor.load cp async bulk tensor n={DIMENSIONS} l=tile? g2={GROUPS}? {TARGET} global l2=tile? \\
    {BYTES} {CAST} {HINT} : 8.0 : 90
tensor.gather cp async bulk tensor n=2d l=tile::gather4? g2={GROUPS}? {TARGET} global \\
    l2=tile::gather4? {BYTES} {CAST} {HINT} : 8.6 : 100
tensor.im2col cp async bulk tensor n={IMAGES} l=im2col? g2={GROUPS}? {TARGET} global l2=im2col? \\
    {BYTES} {CAST} {HINT} : 8.0 : 90
tensor.store cp async bulk tensor n={DIMENSIONS} l=tile? global shared::cta l2=tile? bulk_group \\
    {HINT} : 8.0 : 90
tensor.store.im2col cp async bulk tensor n={IMAGES} l=im2col_no_offs? global shared::cta \\
    l2=im2col_no_offs? bulk_group {HINT} : 8.0 : 90
tensor.scatter cp async bulk tensor n=2d l=tile::scatter4? global shared::cta l2=tile::scatter4? \\
    bulk_group {HINT} : 8.6 : 100
tensor.reduce cp reduce async bulk tensor n={DIMENSIONS} l=tile? global shared::cta \\
    a=add|min|max|inc|dec|and|or|xor l2=tile? bulk_group {HINT} : 8.0 : 90
tensor.reduce.im2col cp reduce async bulk tensor n={IMAGES} l=im2col_no_offs? global shared::cta \\
    a=add|min|max|inc|dec|and|or|xor l2=im2col_no_offs? bulk_group {HINT} : 8.0 : 90
tensor.prefetch cp async bulk prefetch tensor n={DIMENSIONS} L2 global l=tile|tile::gather4? \\
    {HINT} : 8.0 : 90
tensor.prefetch.im2col cp async bulk prefetch tensor n={IMAGES} L2 global l=im2col {HINT} : 8.0 : 90
tensormap.replace tensormap replace tile k=global_address s=global|shared::cta? b1024 b64 : 8.3 : 90
tensormap.stride tensormap replace tile k=global_stride s=global|shared::cta? b1024 b64 : 8.3 : 90
tensormap.field tensormap replace tile k={FIELDS} s=global|shared::cta? b1024 b32 : 8.3 : 90
tensormap.copy tensormap cp_fenceproxy global shared::cta tensormap::generic release \\
    scope={SCOPES} sync aligned : 8.3 : 90
st.async st async o=weak? s=shared::cluster? {BYTES} v=v2|v4? t=b32|b64|u32|u64|s32|s64|f32|f64 : \\
    8.1 : 90
st.bulk         st bulk o=weak? s=shared::cta?              : 8.6 : 100
red.async red async o=relaxed scope=cluster s=shared::cluster? {BYTES} a=and|or|xor t=b32 : 8.1 : 90
red.async.add red async o=relaxed scope=cluster s=shared::cluster? {BYTES} a=add t=u32|s32|u64 : \\
    8.1 : 90
red.async.min red async o=relaxed scope=cluster s=shared::cluster? {BYTES} a=min|max t=u32|s32 : \\
    8.1 : 90
red.async.inc red async o=relaxed scope=cluster s=shared::cluster? {BYTES} a=inc|dec t=u32 : 8.1 \\
    : 90

# Control flow instructions
bra             bra uni?                                    : 1.0 : 50
brx             brx idx uni?                                : 6.0 : 50
call            call uni?                                   : 1.0 : 50
ret             ret uni?                                    : 1.0 : 50
exit            exit                                        : 1.0 : 50

# Parallel synchronization and communication instructions
bar             bar cta? k=sync|arrive|red r=popc|and|or? t=u32|pred? : 1.0 : 50
bar.warp        bar warp sync                               : 6.0 : 50
barrier         barrier cta? k=sync|arrive|red r=popc|and|or? aligned? t=u32|pred? : 6.0 : 50
barrier.aligned barrier cta? k=sync|arrive|red aligned r=popc|and|or t=u32|pred : 6.0 : 50
barrier.cluster barrier cluster k=arrive|wait o=release|relaxed|acquire? aligned? : 7.8 : 90
membar          membar l=cta|gl|sys                         : 1.4 : 50
fence           fence o=sc|acq_rel|acquire|release scope={SCOPES} : 6.0 : 50
fence.mbarrier  fence mbarrier_init release cluster         : 8.0 : 90
fence.restrict  fence o=acquire|release {RESTRICT} scope=cluster : 8.6 : 90
fence.alias     fence proxy k=alias                         : 7.5 : 70
fence.async     fence proxy k=async s=global|shared::cta|shared::cluster? : 8.0 : 90
fence.generic   fence proxy k=async::generic o=acquire|release {RESTRICT} scope=cluster : 8.6 : 90
fence.tensormap fence proxy k=tensormap::generic o=acquire|release scope={SCOPES} : 8.3 : 90
mbarrier.init   mbarrier k=init|inval s=shared|shared::cta? b64 : 7.0 : 80
mbarrier.bytes mbarrier k=expect_tx|complete_tx o=relaxed? scope=cta|cluster? \\
    s=shared|shared::cta|shared::cluster? b64 : 8.0 : 90
mbarrier.arrive mbarrier k=arrive|arrive_drop e=expect_tx|noComplete? o=release|relaxed? \\
    scope=cta|cluster? s=shared|shared::cta|shared::cluster? b64 : 7.0 : 80
mbarrier.wait mbarrier k=test_wait|try_wait parity? o=acquire|relaxed? scope=cta|cluster? \\
    s=shared|shared::cta? b64 : 7.0 : 80
mbarrier.pending_count mbarrier k=pending_count b64         : 7.0 : 80
shfl            shfl sync m=up|down|bfly|idx b32            : 6.0 : 50
vote            vote sync m=all|any|uni pred                : 6.0 : 50
vote.ballot     vote sync m=ballot b32                      : 6.0 : 50
match           match m=any|all sync t=b32|b64              : 6.0 : 70
activemask      activemask b32                              : 6.2 : 50
redux           redux sync m=add|min|max t=u32|s32          : 7.0 : 80
redux.bits      redux sync m=and|or|xor t=b32               : 7.0 : 80
redux.float     redux sync m=min|max abs? NaN? t=f32        : 8.6 : 100
elect           elect sync                                  : 8.0 : 90
griddepcontrol  griddepcontrol k=launch_dependents|wait     : 7.8 : 90

# Tensor memory and the fifth generation of tensor cores
tcgen05.alloc   tcgen05 alloc g={GROUPS} sync aligned s=shared::cta? b32 : 8.6 : 100
tcgen05.dealloc tcgen05 dealloc g={GROUPS} sync aligned b32 : 8.6 : 100
tcgen05.permit  tcgen05 relinquish_alloc_permit g={GROUPS} sync aligned : 8.6 : 100
tcgen05.ld      tcgen05 ld sync aligned shape={MOVED} n={TIMES} pack=pack::16b? b32 : 8.6 : 100
tcgen05.st      tcgen05 st sync aligned shape={MOVED} n={TIMES} pack=unpack::16b? b32 : 8.6 : 100
tcgen05.wait    tcgen05 wait::ld|wait::st sync aligned      : 8.6 : 100
tcgen05.fence   tcgen05 fence::before_thread_sync|fence::after_thread_sync : 8.6 : 100
tcgen05.commit tcgen05 commit g={GROUPS} mbarrier::arrive::one s=shared::cluster? \\
    m=multicast::cluster? b64 : 8.6 : 100
tcgen05.cp      tcgen05 cp g={GROUPS} shape=128x256b|4x256b|128x128b : 8.6 : 100
tcgen05.cp.two  tcgen05 cp g={GROUPS} shape=64x128b w=warpx2::02_13|warpx2::01_23 : 8.6 : 100
tcgen05.cp.four tcgen05 cp g={GROUPS} shape=32x128b w=warpx4 : 8.6 : 100
tcgen05.cp.first tcgen05 cp g={GROUPS} w=warpx4 shape=32x128b : 8.6 : 100
tcgen05.cp.pairs tcgen05 cp g={GROUPS} w=warpx2::02_13|warpx2::01_23 shape=64x128b : 8.6 : 100
tcgen05.mma     tcgen05 mma g={GROUPS} kind={KINDS} u={COLLECTED}? : 8.6 : 100
tcgen05.scaled tcgen05 mma g={GROUPS} kind={SCALED} block_scale v={VECTORS}? u={COLLECTED}? : 8.6 \\
    : 100
clusterlaunchcontrol clusterlaunchcontrol try_cancel async s=shared::cta? {BYTES} \\
    m=multicast::cluster::all? b128 : 8.6 : 100
clc.canceled    clusterlaunchcontrol query_cancel is_canceled pred b128 : 8.6 : 100
clc.ctaid clusterlaunchcontrol query_cancel \\
    get_first_ctaid::x|get_first_ctaid::y|get_first_ctaid::z b32 b128 : 8.6 : 100
clc.all         clusterlaunchcontrol query_cancel get_first_ctaid v4 b32 b128 : 8.6 : 100
tcgen05.ws      tcgen05 mma ws g=cta_group::1 kind={KINDS} u={HELD}? : 8.6 : 100

# Warp level matrix instructions
ldmatrix        ldmatrix sync aligned s=m8n8 n=x1|x2|x4 trans? {ROWS} b16 : 6.5 : 75
ldmatrix.other  ldmatrix sync aligned n=x1|x2|x4 trans? s=m8n8 {ROWS} b16 : 6.5 : 75
stmatrix        stmatrix sync aligned s=m8n8 n=x1|x2|x4 trans? {ROWS} b16 : 7.8 : 90
stmatrix.other  stmatrix sync aligned n=x1|x2|x4 trans? s=m8n8 {ROWS} b16 : 7.8 : 90
ldmatrix.byte   ldmatrix sync aligned s=m16n16 n=x1|x2 trans {ROWS} b8 : 8.6 : 100
ldmatrix.packed ldmatrix sync aligned s=m8n16 n=x1|x2|x4 {ROWS} b8x16 f=b6x16_p32|b4x16_p64 : 8.6 \\
    : 100
ldmatrix.packed.turned ldmatrix sync aligned s=m16n16 n=x1|x2 trans {ROWS} b8x16 \\
    f=b6x16_p32|b4x16_p64 : 8.6 : 100
stmatrix.byte   stmatrix sync aligned s=m16n8 n=x1|x2|x4 trans {ROWS} b8 : 8.6 : 100
movmatrix       movmatrix sync aligned m8n8 trans b16       : 7.8 : 75
mma.quarters    mma sync aligned s=m8n8k4 {LAYOUTS} d=f16|f32 a=f16 b=f16 c=f16|f32 : 6.4 : 70
mma.half mma sync aligned s=m16n8k8|m16n8k16 row col d=f16|f32 a=f16 b=f16 c=f16|f32 : 6.5 : 75
mma.brain       mma sync aligned s=m16n8k8|m16n8k16 row col d=f32 a=bf16 b=bf16 c=f32 : 7.0 : 80
mma.tf32        mma sync aligned s=m16n8k4|m16n8k8 row col d=f32 a=tf32 b=tf32 c=f32 : 7.0 : 80
mma.eight mma sync aligned s=m16n8k16|m16n8k32 row col d=f16|f32 a={FP8} b={FP8} c=f16|f32 : 8.4 \\
    : 89
mma.small mma sync aligned s=m16n8k32 row col kind::f8f6f4 d=f16|f32 a={SMALL} b={SMALL} \\
    c=f16|f32 : 8.7 : 120
mma.small.other mma sync aligned kind::f8f6f4 s=m16n8k32 row col d=f16|f32 a={SMALL} b={SMALL} \\
    c=f16|f32 : 8.7 : 120
mma.scaled mma sync aligned s=m16n8k32|m16n8k64 row col g={SCALED} block_scale x={SIZES}? d=f32 \\
    a={SMALL} b={SMALL} c=f32 t=ue8m0|ue4m3 : 8.7 : 120
mma.scaled.other mma sync aligned g={SCALED} block_scale x={SIZES}? s=m16n8k32|m16n8k64 row col \\
    d=f32 a={SMALL} b={SMALL} c=f32 t=ue8m0|ue4m3 : 8.7 : 120
mma.double mma sync aligned s=m8n8k4|m16n8k4|m16n8k8|m16n8k16 row col r=rn? d=f64 a=f64 b=f64 \\
    c=f64 : 7.0 : 80
mma.byte mma sync aligned s=m8n8k16|m16n8k16|m16n8k32 row col satfinite? d=s32 a={I8} b={I8} \\
    c=s32 : 6.5 : 75
mma.nibble mma sync aligned s=m8n8k32|m16n8k32|m16n8k64 row col satfinite? d=s32 a={I4} b={I4} \\
    c=s32 : 6.5 : 75
mma.bit mma sync aligned s=m8n8k128|m16n8k128|m16n8k256 row col d=s32 a=b1 b=b1 c=s32 o=xor|and \\
    popc : 7.0 : 75
mma.sp.half mma v=sp sync aligned s=m16n8k16|m16n8k32 row col d=f16|f32 a=f16 b=f16 c=f16|f32 : \\
    7.1 : 80
mma.sp.brain mma v=sp sync aligned s=m16n8k16|m16n8k32 row col d=f32 a=bf16 b=bf16 c=f32 : 7.1 : 80
mma.sp.tf32 mma v=sp sync aligned s=m16n8k8|m16n8k16 row col d=f32 a=tf32 b=tf32 c=f32 : 7.1 : 80
mma.sp.eight    mma v=sp sync aligned s=m16n8k64 row col d=f32 a={FP8} b={FP8} c=f32 : 8.4 : 89
mma.sp.byte mma v=sp sync aligned s=m16n8k32|m16n8k64 row col satfinite? d=s32 a={I8} b={I8} \\
    c=s32 : 7.1 : 80
mma.ordered.half mma v=sp::ordered_metadata sync aligned s=m16n8k16|m16n8k32 row col d=f16|f32 \\
    a=f16 b=f16 c=f16|f32 : 8.5 : 80
mma.ordered.brain mma v=sp::ordered_metadata sync aligned s=m16n8k16|m16n8k32 row col d=f32 \\
    a=bf16 b=bf16 c=f32 : 8.5 : 80
mma.ordered.tf32 mma v=sp::ordered_metadata sync aligned s=m16n8k8|m16n8k16 row col d=f32 a=tf32 \\
    b=tf32 c=f32 : 8.5 : 80
mma.ordered.eight mma v=sp::ordered_metadata sync aligned s=m16n8k64 row col d=f32 a={FP8} \\
    b={FP8} c=f32 : 8.5 : 89
mma.ordered.small mma v=sp::ordered_metadata sync aligned s=m16n8k64 row col kind::f8f6f4 \\
    d=f16|f32 a={SMALL} b={SMALL} c=f16|f32 : 8.7 : 120
mma.ordered.small.other mma v=sp::ordered_metadata sync aligned kind::f8f6f4 s=m16n8k64 row col \\
    d=f16|f32 a={SMALL} b={SMALL} c=f16|f32 : 8.7 : 120
mma.ordered.byte mma v=sp::ordered_metadata sync aligned s=m16n8k32|m16n8k64 row col satfinite? \\
    d=s32 a={I8} b={I8} c=s32 : 8.5 : 80
wmma.load.half  wmma load w=a|b sync aligned l=row|col s={WMMA} {MEMORY} t=f16|bf16|{I8} : 6.0 : 70
wmma.load.tf32  wmma load w=a|b sync aligned l=row|col s=m16n16k8 {MEMORY} t=tf32 : 7.0 : 80
wmma.load.f64   wmma load w=a|b|c sync aligned l=row|col s=m8n8k4 {MEMORY} t=f64 : 7.0 : 80
wmma.load.part  wmma load w=a|b sync aligned l=row|col s=m8n8k32 {MEMORY} t={I4} : 6.3 : 75
wmma.load.bit   wmma load w=a|b sync aligned l=row|col s=m8n8k128 {MEMORY} t=b1 : 6.3 : 75
wmma.load.sum   wmma load w=c sync aligned l=row|col s={WMMA} {MEMORY} t=f16|f32|s32 : 6.0 : 70
wmma.load.sum8  wmma load w=c sync aligned l=row|col s=m16n16k8 {MEMORY} t=f32 : 7.0 : 80
wmma.load.sums  wmma load w=c sync aligned l=row|col s=m8n8k32|m8n8k128 {MEMORY} t=s32 : 6.3 : 75
wmma.store      wmma store w=d sync aligned l=row|col s={WMMA} {MEMORY} t=f16|f32|s32 : 6.0 : 70
wmma.store.tf32 wmma store w=d sync aligned l=row|col s=m16n16k8 {MEMORY} t=f32 : 7.0 : 80
wmma.store.f64  wmma store w=d sync aligned l=row|col s=m8n8k4 {MEMORY} t=f64 : 7.0 : 80
wmma.store.part wmma store w=d sync aligned l=row|col s=m8n8k32|m8n8k128 {MEMORY} t=s32 : 6.3 : 75
wmma.mma.half   wmma mma sync aligned {LAYOUTS} s={WMMA} d=f16|f32 c=f16|f32 : 6.0 : 70
wmma.mma.brain  wmma mma sync aligned {LAYOUTS} s={WMMA} d=f32 a=bf16 b=bf16 c=f32 : 7.0 : 80
wmma.mma.tf32   wmma mma sync aligned {LAYOUTS} s=m16n16k8 d=f32 a=tf32 b=tf32 c=f32 : 7.0 : 80
wmma.mma.f64    wmma mma sync aligned {LAYOUTS} s=m8n8k4 r=rn? d=f64 a=f64 b=f64 c=f64 : 7.0 : 80
wmma.mma.late   wmma mma sync aligned {LAYOUTS} s=m8n8k4 d=f64 a=f64 b=f64 c=f64 r=rn : 7.0 : 80
wmma.mma.byte wmma mma sync aligned {LAYOUTS} s={WMMA} d=s32 a={I8} b={I8} c=s32 satfinite? : 6.3 \\
    : 72
wmma.mma.nibble wmma mma sync aligned {LAYOUTS} s=m8n8k32 d=s32 a={I4} b={I4} c=s32 satfinite? : \\
    6.3 : 75
wmma.mma.bit wmma mma o=xor|and popc sync aligned {LAYOUTS} s=m8n8k128 d=s32 a=b1 b=b1 c=s32 : \\
    6.3 : 75

# Asynchronous warpgroup level matrix instructions
wgmma.half      wgmma mma_async sync aligned s={K16} d=f16|f32 a=f16 b=f16 : 8.0 : 90
wgmma.brain     wgmma mma_async sync aligned s={K16} d=f32 a=bf16 b=bf16 : 8.0 : 90
wgmma.tf32      wgmma mma_async sync aligned s={K8} d=f32 a=tf32 b=tf32 : 8.0 : 90
wgmma.eight     wgmma mma_async sync aligned s={K32} d=f16|f32 a={FP8} b={FP8} : 8.0 : 90
wgmma.byte      wgmma mma_async sync aligned s={K32} d=s32 a={I8} b={I8} satfinite? : 8.0 : 90
wgmma.bit       wgmma mma_async sync aligned s={K256} d=s32 a=b1 b=b1 o=and popc : 8.0 : 90
wgmma.sp.half   wgmma mma_async sp sync aligned s={K32} d=f16|f32 a=f16 b=f16 : 8.2 : 90
wgmma.sp.brain  wgmma mma_async sp sync aligned s={K32} d=f32 a=bf16 b=bf16 : 8.2 : 90
wgmma.sp.tf32   wgmma mma_async sp sync aligned s={K16} d=f32 a=tf32 b=tf32 : 8.2 : 90
wgmma.sp.eight  wgmma mma_async sp sync aligned s={K64} d=f16|f32 a={FP8} b={FP8} : 8.2 : 90
wgmma.sp.byte   wgmma mma_async sp sync aligned s={K64} d=s32 a={I8} b={I8} satfinite? : 8.2 : 90
wgmma.fence     wgmma fence sync aligned                    : 8.0 : 90
wgmma.commit    wgmma commit_group sync aligned             : 8.0 : 90
wgmma.wait      wgmma wait_group sync aligned               : 8.0 : 90

# Miscellaneous instructions
trap            trap                                        : 1.0 : 50
brkpt           brkpt                                       : 1.0 : 50
nanosleep       nanosleep u32                               : 6.3 : 70
pmevent         pmevent mask?                               : 1.4 : 50
setmaxnreg      setmaxnreg k=inc|dec sync aligned u32       : 8.0 : 90
"""
