"""What kernels compute on one target: `front_cases.py sm_90` prints what is wrong, by case."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout

import front_kernels as kernels
import papergpu
import torch
import triton
from papergpu.records import worst_accesses
from ptx_launch import catch_error, list_cases
from triton.runtime.driver import driver
from triton.tools.tensor_descriptor import TensorDescriptor


def catch_message(kind: type[Exception], call: object) -> str:
    """What a call says when it raises an error of that kind."""
    try:
        call()  # type: ignore[operator]
    except kind as error:
        return str(error)
    raise AssertionError("nothing was raised")


def find_line(text: str) -> int:
    """The line of the kernels on which that stands."""
    with open(kernels.__file__, encoding="utf-8") as file:
        return next(at for at, line in enumerate(file, 1) if text in line)


def case_add(target: str) -> None:
    for dtype in (torch.float32, torch.int32, torch.float16, torch.bfloat16, torch.float64):
        x, y = (torch.randn(1000) * 9).to(dtype), (torch.randn(1000) * 9).to(dtype)
        out = torch.empty_like(x)
        kernels.add[(8,)](x, y, out, 1000, BLOCK=128)
        assert torch.equal(out, x + y), dtype


def case_out_of_bounds(target: str) -> None:
    x = torch.zeros(1000)
    said = catch_message(
        papergpu.Finding, lambda: kernels.unmasked[(8,)](x, x.clone(), 1000, BLOCK=128)
    )
    line = find_line("the finding must name this line")
    if triton.__version__.startswith("3.9."):  # whose lines are one too many
        said = said.replace(f":{line + 1},", f":{line},")
    assert said == (
        f"unmasked at front_kernels.py:{line}, block (7, 0, 0), thread (104, 0, 0): reads 4 bytes "
        "at byte 4000 of x_ptr, which has 4000: mask it, or mend the offset"
    ), said


class Strided:
    """What Triton takes for a tensor, and is none."""

    def __init__(self, held: object, tensor: torch.Tensor) -> None:
        self.held, self.dtype, self.at = held, tensor.dtype, tensor.data_ptr()

    def data_ptr(self) -> int:
        return self.at


def case_like_tensors(target: str) -> None:
    memory, out = torch.arange(1000.0), torch.zeros(100)
    x = Strided(memory, memory[300:])
    kernels.add[(1,)](x, x, Strided(out, out), 100, BLOCK=128)
    assert torch.equal(out, 2 * memory[300:400])
    unknown = Strided(None, out)
    said = catch_message(TypeError, lambda: kernels.add[(1,)](x, x, unknown, 100, BLOCK=128))
    assert said == "add: out_ptr is a Strided of unknown memory: keep its tensor in it", said


def case_in_place(target: str) -> None:
    """What other warps loaded of a small tile, which one of them stores, is dropped."""
    for seed in range(4):
        x, total = torch.arange(32.0), torch.zeros(128)
        with papergpu.settings(seed=seed, schedule=("robin", "far", "random")[seed % 3]):
            kernels.doubled_in_place[(1,)](x, total, N=32, SUM=False, num_warps=4)
            assert torch.equal(x, 2 * torch.arange(32.0))
            said = catch_message(
                papergpu.Finding,
                lambda: kernels.doubled_in_place[(1,)](x, total, N=32, SUM=True, num_warps=4),  # noqa: B023
            )
            assert "of x_ptr, which warp" in said and "put a barrier between them" in said, said


def case_reduce(target: str) -> None:
    x = torch.randint(-99, 99, (5, 256)).float()
    out = torch.empty(5, 3)
    kernels.reduce_rows[(5,)](x, out, N=256)
    assert torch.equal(out, torch.stack([x.sum(1), x.amax(1), x.argmin(1).float()], 1))


def case_softmax(target: str) -> None:
    for dtype, bound in ((torch.float32, 1e-7), (torch.float16, 1e-4), (torch.bfloat16, 1e-3)):
        x = torch.randn(7, 300).to(dtype)
        out = torch.empty_like(x)
        kernels.softmax[(7,)](x, out, 300, BLOCK=512)
        want = torch.softmax(x.double(), 1)
        assert (out.double() - want).abs().max() < bound
        # Rounded, not cut off: that would be wrong for half of them.
        assert dtype == torch.float32 or (out == want.to(dtype)).float().mean() > 0.9


def case_dot(target: str) -> None:
    for dtype, precision, bound in (
        (torch.float16, "ieee", 1e-5),
        (torch.bfloat16, "ieee", 1e-5),
        (torch.float32, "tf32", 5e-2),
        (torch.float32, "ieee", 1e-5),
    ):
        a, b = torch.randn(64, 32).to(dtype), torch.randn(32, 64).to(dtype)
        c = torch.empty(64, 64)
        kernels.dot[(1,)](a, b, c, N=64, K=32, PRECISION=precision)
        off = (c.double() - a.double() @ b.double()).abs().max()
        assert off < bound, (dtype, precision, off)


def case_atomics(target: str) -> None:
    x = torch.randint(0, 16, (1000,), dtype=torch.int32)
    bins, top = torch.zeros(16, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    kernels.count[(8,)](x, bins, top, 1000, BLOCK=128)
    assert torch.equal(bins, torch.bincount(x, minlength=16).int()) and top == x.max()


def case_autotune(target: str) -> None:
    x = torch.zeros(4096)
    grid = lambda meta: (triton.cdiv(4096, meta["BLOCK"]),)  # noqa: E731
    with redirect_stderr(io.StringIO()) as said:
        kernels.tuned[grid](x, 4096)
        kernels.tuned[grid](x[16:], 4080)
    assert kernels.tuned.best_config.kwargs == {"BLOCK": 32}  # which comes first
    assert said.getvalue().startswith("papergpu: tuned takes the first of 2 configurations")
    assert said.getvalue().count("\n") == 1 and torch.equal(x[:16], torch.ones(16))
    papergpu.settings(autotune="all")
    kernels.tuned.cache.clear()
    x.zero_()
    kernels.tuned[grid](x, 4096)
    assert torch.equal(x, torch.ones(4096))
    times = kernels.tuned.configs_timings
    kernels.tuned.cache.clear()
    kernels.tuned[grid](x, 4096)
    assert len(times) == 2 and times == kernels.tuned.configs_timings
    assert kernels.tuned.best_config.kwargs == {"BLOCK": 256}  # fewer instructions an element
    kernels.guessed[(1,)](x, 100)
    assert x[:100].tolist() == [128.0 + at for at in range(100)] and x[100] == 2


def case_testing(target: str) -> None:
    x = torch.zeros(64)
    call = lambda: kernels.guessed[(1,)](x, 64)  # noqa: E731
    assert triton.testing.do_bench(call) == triton.testing.do_bench(call) > 1
    assert triton.testing.do_bench(call, quantiles=[0.5, 0.2, 0.8]) == [
        triton.testing.do_bench_cudagraph(call)] * 3  # fmt: skip


def case_inline_assembly(target: str) -> None:
    x = torch.randint(-(2**31), 2**31, (128,), dtype=torch.int32)
    out = torch.empty_like(x)
    kernels.assembled[(1,)](x, out, N=128)
    assert torch.equal(out, x ^ torch.arange(128, dtype=torch.int32))


def case_libdevice(target: str) -> None:
    x = torch.randn(128)
    out = torch.empty(3, 128)
    kernels.library[(1,)](x, out, N=128)
    want = torch.stack([x.double().tanh(), x.double().abs() ** 1.5, x.double().erf()])
    assert ((out.double() - want) / want).abs().max() < 1e-6


def case_scan(target: str) -> None:
    x = torch.randint(0, 99, (64,))
    out = torch.empty(3, 64, dtype=torch.int64)
    kernels.scan[(1,)](x, out, N=64)
    want = torch.stack([x.cumsum(0), (x % 3 + 1).cumprod(0), x.sort().values])
    assert torch.equal(out, want)


def case_assert(target: str) -> None:
    kernels.asserting[(1,)](torch.arange(4).int(), N=4, debug=True)
    said = catch_message(
        papergpu.Finding, lambda: kernels.asserting[(1,)](torch.arange(8).int(), N=8, debug=True)
    )
    assert said.startswith(f"asserting at front_kernels.py:{find_line('below five')}, "), said
    assert "x is below five" in said and "thread (5, 0, 0)" in said, said


def case_tuples(target: str) -> None:
    x, y = torch.arange(32.0), torch.empty(32)
    kernels.tuples[(1,)]((x, 7), ((y, 3), None), SCALE=2, N=32)
    assert torch.equal(y, x * 2 + 10)
    short = torch.empty(31)
    said = catch_message(
        papergpu.Finding,
        lambda: kernels.tuples[(1,)]((x, 7), ((short, 3), None), SCALE=2, N=32),
    )
    assert "of more[0][0], which has 124" in said, said


def case_unspecialized(target: str) -> None:
    compiled: dict[bool, set[str]] = {True: set(), False: set()}
    for specialize, seen in compiled.items():
        hear = lambda one, seen=seen: seen.add(one.ptx)  # noqa: E731
        with papergpu.settings(specialize=specialize), papergpu.on_launch(hear):
            for step in (1, 7, 16):
                x, y = torch.arange(520.0), torch.empty(32)
                for given in (x, x[1:]):
                    kernels.strided[(1,)](given, y, step, N=32)
                    assert torch.equal(y, given[::step][:32])
                kernels.tuples[(1,)]((x[1:], step), ((y, 1), None), SCALE=1, N=32)
                assert torch.equal(y, x[1:33] + 1 + step)
    assert len(compiled[True]) > len(compiled[False]) == 2, {k: len(v) for k, v in compiled.items()}


def case_grid(target: str) -> None:
    out = torch.empty(2, 3, 4, dtype=torch.int64)
    kernels.whole_grid[(4, 3, 2)](out, 2**40, -5)
    z, y, x = torch.meshgrid(torch.arange(2), torch.arange(3), torch.arange(4), indexing="ij")
    assert torch.equal(out, (x + 10 * y + 100 * z) * 2**40 - 5)
    kernels.whole_grid[(0,)](out, 1, 1)  # nothing runs
    assert out[1, 2, 3] == 123 * 2**40 - 5


def case_doubles(target: str) -> None:
    x, out = torch.rand(64, dtype=torch.float64), torch.empty(64, dtype=torch.float64)
    kernels.doubles[(1,)](x, out, 0.1, N=64)
    assert (out - (x.sqrt() * 0.1 + x / 3)).abs().max() < 1e-15


def case_bytes(target: str) -> None:
    for dtype in (torch.int8, torch.uint8, torch.int16):
        x = torch.arange(-128, 128).to(dtype)
        out = torch.empty_like(x)
        kernels.bytes_[(1,)](x, out, N=256)
        assert torch.equal(out, (x.int() * x.int() - (x >> 1).int()).to(dtype)), dtype


def case_views(target: str) -> None:
    whole = torch.arange(1000.0)
    out = torch.zeros(100)
    kernels.strided[(1,)](whole[3:], out[17:], 7, N=64)
    assert torch.equal(out[17:81], whole[3::7][:64]) and out[:17].sum() == out[81:].sum() == 0


def case_scalars(target: str) -> None:
    out = torch.empty(5)
    kernels.scalars[(1,)](out, 0.1, 0.3, 1 / 3, True, -7)
    # A bfloat16 is cut off, as Triton's launcher does.
    want = torch.tensor([0.1, 0.298828125, 1 / 3, 1.0, -7.0])
    want[0] = want[0].half()
    assert torch.equal(out, want), out


def case_touching(target: str) -> None:
    x, y = torch.arange(16).int(), torch.arange(16).int() * 3
    out = torch.empty(32, dtype=torch.int32)
    addresses = torch.tensor([x.data_ptr(), y.data_ptr()])
    call = lambda: kernels.indirect[(1,)](addresses, out, N=16)  # noqa: E731
    assert "reads 4 bytes" in catch_message(papergpu.Finding, call)
    with papergpu.touching(x, y=y):
        call()
    assert torch.equal(out, torch.cat([x, y]))
    catch_message(papergpu.Finding, call)
    with papergpu.touching(x, y=y[:1].clone()):
        catch_message(papergpu.Finding, call)


def case_unwritten(target: str) -> None:
    x, out = papergpu.unwritten(torch.empty(128)), torch.empty(128)
    copy = lambda: kernels.strided[(1,)](x, out, 1, N=128)  # noqa: E731
    assert "of x_ptr, which nobody has written" in catch_message(papergpu.Finding, copy)
    kernels.strided[(1,)](out, x[:64], 1, N=64)
    assert "reads byte 256 of x_ptr" in catch_message(papergpu.Finding, copy)
    kernels.strided[(1,)](out, x[64:], 1, N=64)
    copy()
    papergpu.unwritten(x[::2])
    catch_message(papergpu.Finding, copy)
    x.zero_()
    copy()
    papergpu.unwritten(x)
    x.numpy()[:] = 1
    papergpu.written(x)
    copy()


def case_settings(target: str) -> None:
    seen: list[papergpu.Launched] = []
    x = torch.zeros(512)
    with papergpu.on_launch(seen.append), papergpu.settings(profile=True, seed=3):
        kernels.guessed[(1,)](x, 100)
    kernels.guessed[(1,)](x, 100)
    (only,) = seen
    assert only.name == only.program.name == "guessed" and only.settings.seed == 3
    assert only.grid == (1, 1, 1) and only.block == (128, 1, 1)
    counts = only.result.counts
    assert counts is not None and counts["run"].sum() == only.result.steps
    lines = {only.program.locate_instruction(at) for at in range(len(counts))}
    assert f"front_kernels.py:{find_line('at + BLOCK, mask')}" in lines
    assert not papergpu.session.current_settings().profile


def case_samples(target: str) -> None:
    """Columns of a matrix, read a row at a time: a sector for each lane."""
    seen: list[papergpu.Launched] = []
    x, out = torch.zeros(128 * 64), torch.empty(128)
    with papergpu.on_launch(seen.append), papergpu.settings(profile=True, checks=False):
        kernels.strided[(1,)](x, out, 64, N=128)
    (one,) = seen
    assert one.result.samples is not None
    load, store = worst_accesses(one.program, one.result.samples)
    assert (load.space, load.does, load.passes, load.ideal) == ("global", "load", 32, 4)
    assert load.addresses == tuple(256 * lane for lane in range(32))
    assert (store.does, store.passes, store.warp, store.block) == ("store", 4, 0, (0, 0, 0))
    assert store.addresses == tuple(4 * lane for lane in range(32))
    lines = one.ptx.splitlines()
    assert "ld.global" in lines[load.line - 1] and "st.global" in lines[store.line - 1]
    shift = triton.__version__.startswith("3.9.")  # whose lines are one too many
    assert load.place is not None and load.place.line == find_line("at * step") + shift, load.place
    assert one.shared == 0


def case_descriptors(target: str) -> None:
    x = torch.arange(64 * 64).reshape(64, 64).to(torch.float16)
    y = torch.zeros(64, 64, dtype=torch.float16)
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8))
    kernels.described[(1,)](TensorDescriptor.from_tensor(x, [32, 32]), y, N=64)
    assert torch.equal(y[:32, :32], x[:32, :32].T) and torch.equal(y[32:, :32], x[:32, 32:].T)
    assert y[:, 32:].sum() == 0


def case_clusters(target: str) -> None:
    if target == "sm_80":
        return  # it has none
    a, b = torch.randn(64, 32).half(), torch.randn(32, 64).half()
    c = torch.empty(64, 64)
    seen: list[papergpu.Launched] = []
    with papergpu.on_launch(seen.append):
        kernels.dot[(1,)](a, b, c, N=64, K=32, PRECISION="ieee", num_ctas=2)
    assert (c - a.float() @ b.float()).abs().max() < 1e-5
    assert seen[0].grid == seen[0].cluster == (2, 1, 1)


def case_together(target: str) -> None:
    arrived, out = torch.zeros(1, dtype=torch.int32), torch.empty(6, dtype=torch.int32)
    kernels.met[(6,)](arrived, out, launch_cooperative_grid=True)
    assert out.tolist() == [6] * 6
    if target != "sm_80":
        x = torch.empty(32)
        kernels.waiting[(1,)](x, N=32, launch_pdl=True)
        assert torch.equal(x, torch.arange(32) * 2.0)


def case_printing(target: str) -> None:
    with redirect_stdout(io.StringIO()) as said:
        kernels.printing[(1,)](torch.arange(32) * 10, N=32, num_warps=1)
    lines = said.getvalue().splitlines()
    assert lines[3] == "pid (0, 0, 0) idx ( 3) x is: 30" and len(lines) == 32, lines[:4]


def case_refused(target: str) -> None:
    x = torch.zeros(8, device="meta")
    said = catch_message(ValueError, lambda: kernels.guessed[(1,)](x, 8))
    assert said == ("guessed: x_ptr is on meta, but papergpu runs on the CPU: pass x_ptr.cpu()"), (
        said
    )
    catch_message(ValueError, lambda: papergpu.settings(chekcs=False))
    catch_message(ValueError, lambda: papergpu.settings(schedule="fair"))
    catch_message(ValueError, lambda: papergpu.activate("sm_70"))


def case_undone(target: str) -> None:
    now = driver.active
    sm = int(target.removeprefix("sm_"))
    assert torch.cuda.get_device_capability() == divmod(sm, 10)
    assert now.get_active_torch_device() == torch.device("cpu")
    with papergpu.active("sm_86"):
        assert driver.active.get_current_target().arch == 86
        assert torch.cuda.get_device_properties(0).minor == 6
        x = torch.zeros(8)
        kernels.guessed[(1,)](x, 8)
    assert driver.active is now and torch.cuda.get_device_capability() == divmod(sm, 10)
    compiled = kernels.guessed[(1,)](torch.zeros(8), 8)
    assert f".target {target}" in compiled.asm["ptx"]
    assert compiled.asm["cubin"].decode() == compiled.asm["ptx"]
    assert compiled.metadata.target.arch == sm


def main(target: str) -> None:
    from triton.backends import backends

    found = {}
    before = torch.cuda.get_device_capability, dict(backends), driver._active
    papergpu.activate(target, papergpu.Settings(threads=2))
    for name in list_cases(__file__):
        torch.manual_seed(0)
        found[name] = catch_error(globals()[name], target)
    papergpu.deactivate()
    after = torch.cuda.get_device_capability, dict(backends), driver._active
    if before != after:
        found["case_undone"] += f"left behind: {before} {after}"
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
