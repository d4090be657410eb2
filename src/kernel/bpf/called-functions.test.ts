/** Functions that programs call, where kernels may have them. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { describe, test } from "node:test";
import { KERNEL_FUNCTION_NAMES, type KernelFunctionName } from "./asm/kernel-functions.ts";
import { BpfError } from "./bpf-error.ts";
import { functionTypes } from "./btf.ts";
import { findFunctions, type TypeSource } from "./called-functions.ts";
import { openTypes } from "./module-types.ts";
import { btf } from "./testing/made-btf.ts";
import { reasonToSkip } from "./testing/test-cgroup.ts";

const functions = (names: readonly KernelFunctionName[]) => [{ kind: 8 }, ...names.map((name) => ({ kind: 12, name }))];

/** A kernel with these functions, and with these modules loaded. */
class MadeKernel implements TypeSource {
  /** By module: what it has, and undefined where it does not tell. */
  readonly modules: Readonly<Record<string, readonly KernelFunctionName[] | undefined>>;
  readonly #own;
  openCount = 0;

  constructor(own: readonly KernelFunctionName[], modules: MadeKernel["modules"] = {}) {
    this.#own = functionTypes(btf(functions(own)), KERNEL_FUNCTION_NAMES);
    this.modules = modules;
  }

  own() {
    return this.#own;
  }

  open(names: readonly string[]) {
    // The kernel's order is that of loading.
    const telling = Object.entries(this.modules).filter(([name, has]) => names.includes(name) && has !== undefined);
    return telling.map(([name, has = []], index) => {
      this.openCount++;
      return { name, fd: 40 + index, read: () => btf(functions(has), this.#own), close: () => void this.openCount-- };
    });
  }

  isLoaded(module: string): boolean {
    return Object.hasOwn(this.modules, module);
  }
}

describe("functions of the kernel that a program calls", () => {
  const names = ["bpf_skb_ct_alloc", "bpf_ct_set_nat_info", "bpf_ct_release"] as const;

  test("are found in the kernel, and nothing is opened", () => {
    const kernel = new MadeKernel(names, { nf_nat: ["bpf_ct_set_nat_info"] });
    const { numbers, descriptors } = findFunctions(names, kernel);
    assert.deepEqual(
      names.map((name) => numbers.get(name)),
      [2, 3, 4].map((id) => ({ id, module: 0 })),
    );
    assert.deepEqual([descriptors, kernel.openCount], [undefined, 0]);
  });

  test("are found in modules, in whichever order they come, with a descriptor for each", () => {
    const kernel = new MadeKernel([], {
      nf_nat: ["bpf_ct_set_nat_info"],
      veth: ["bpf_ct_release"],
      nf_conntrack: ["bpf_skb_ct_alloc", "bpf_ct_release"],
    });
    const found = findFunctions(names, kernel);
    assert.deepEqual(
      names.map((name) => found.numbers.get(name)),
      [
        { id: 3, module: 2 },
        { id: 3, module: 1 },
        { id: 4, module: 2 },
      ],
    );
    assert.deepEqual([...new Int32Array(found.descriptors?.buffer ?? new ArrayBuffer(0))], [0, 40, 41]);
    assert.equal(kernel.openCount, 2);
    found.close();
    assert.equal(kernel.openCount, 0);
  });

  test("may be partly in the kernel and partly in a module", () => {
    const kernel = new MadeKernel(["bpf_skb_ct_alloc", "bpf_ct_release"], { nf_nat: ["bpf_ct_set_nat_info"] });
    const { numbers } = findFunctions(names, kernel);
    assert.deepEqual(
      [numbers.get("bpf_ct_set_nat_info"), numbers.get("bpf_ct_release")?.module],
      [{ id: 5, module: 1 }, 0],
    );
  });

  const missing: readonly (readonly [string, MadeKernel, RegExp])[] = [
    [
      "the module is not loaded",
      new MadeKernel([]),
      /bpf_skb_ct_alloc is not in .* the module nf_conntrack, .* not loaded/,
    ],
    [
      "the module does not tell its types",
      new MadeKernel([], { nf_conntrack: undefined }),
      /its module nf_conntrack does not tell its types/,
    ],
    [
      "the module is of an older kernel",
      new MadeKernel([], { nf_conntrack: ["bpf_skb_ct_alloc", "bpf_ct_release"], nf_nat: [] }),
      /neither this kernel nor its module nf_nat has bpf_ct_set_nat_info/,
    ],
  ];
  for (const [why, kernel, message] of missing) {
    test(`are said to be absent, when ${why}`, () => {
      assert.throws(
        () => findFunctions(names, kernel),
        (error) => error instanceof BpfError && error.code === "unsupported" && message.test(error.message),
      );
      assert.equal(kernel.openCount, 0, "what was opened is closed");
    });
  }
});

test("this kernel tells the same of itself by a file and by bpf(2)", { skip: skipOwn() }, () => {
  const { numbers } = findFunctions([]);
  const [own, ...others] = openTypes(["vmlinux"]);
  assert.ok(own !== undefined && others.length === 0);
  try {
    const { ids } = functionTypes(own.read(), KERNEL_FUNCTION_NAMES);
    for (const [name, { id, module }] of numbers) assert.deepEqual([id, module], [ids.get(name), 0]);
    assert.equal(ids.size, numbers.size);
  } finally {
    own.close();
  }
});

function skipOwn(): string | false {
  return existsSync("/sys/kernel/btf/vmlinux") ? reasonToSkip() : "kernel: it does not tell its types";
}
