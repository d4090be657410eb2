/** Where the running kernel has the functions that a program calls: in itself, or in modules that are loaded. */
import { existsSync, readFileSync } from "node:fs";
import type { KernelFunctionNumber } from "./asm/encode.ts";
import { KERNEL_FUNCTION_NAMES, type KernelFunctionName } from "./asm/kernel-functions.ts";
import { BpfError } from "./bpf-error.ts";
import { type FunctionTypes, functionTypes } from "./btf.ts";
import { type OpenTypes, openTypes } from "./module-types.ts";
import { fixedBytes } from "./system-call.ts";

/** Of the kernel itself; without CAP_SYS_ADMIN it is the only way to them. */
const KERNEL_TYPES = "/sys/kernel/btf/vmlinux";

/** Those of connection tracking, where they are not built in. */
const MODULES = ["nf_conntrack", "nf_nat"] as const;

type Types = FunctionTypes<KernelFunctionName>;

export interface CalledFunctions {
  readonly numbers: ReadonlyMap<KernelFunctionName, KernelFunctionNumber>;
  /** For PROG_LOAD: words, of which a number's `module` is the index; undefined when all are the kernel's own. */
  readonly descriptors: Uint8Array | undefined;
  /** When the program is loaded: it keeps the modules by itself. */
  close(): void;
}

/** The kernel as it is asked for types. */
export interface TypeSource {
  /** The kernel's own. @throws BpfError */
  own(): Types;
  /** Those of modules that are loaded. @throws BpfError */
  open(modules: readonly string[]): readonly OpenTypes[];
  isLoaded(module: string): boolean;
}

let known: Types | undefined;

const RUNNING: TypeSource = {
  own: () => {
    known ??= functionTypes(readKernelTypes(), KERNEL_FUNCTION_NAMES);
    return known;
  },
  open: openTypes,
  // What is built in has no state.
  isLoaded: (module) => existsSync(`/sys/module/${module}/initstate`),
};

/**
 * Finds functions. Modules are asked for only when the kernel itself lacks one, and each time: they come and go.
 *
 * @throws BpfError `unsupported` with the first that is nowhere and why, or `EPERM`.
 */
export function findFunctions(names: readonly KernelFunctionName[], source: TypeSource = RUNNING): CalledFunctions {
  const own = source.own();
  const numbers = new Map([...own.ids].map(([name, id]) => [name, { id, module: 0 }]));
  if (names.every((name) => numbers.has(name))) return { numbers, descriptors: undefined, close: () => {} };
  const modules = source.open(MODULES);
  const close = (): void => modules.forEach((one) => void one.close());
  try {
    const descriptors = fixedBytes(4 * (modules.length + 1));
    const words = new Int32Array(descriptors.buffer);
    for (const [index, types] of modules.entries()) {
      const module = index + 1;
      words[module] = types.fd;
      const { ids } = functionTypes(types.read(), KERNEL_FUNCTION_NAMES, own);
      for (const [name, id] of ids) numbers.set(name, { id, module });
    }
    const absent = names.find((name) => !numbers.has(name));
    if (absent !== undefined) {
      const telling = modules.map(({ name }) => name);
      throw new BpfError("unsupported", `bpf: ${absenceOf(absent, telling, source)}`);
    }
    return { numbers, descriptors, close };
  } catch (error) {
    close();
    throw error;
  }
}

/** Why a function is nowhere, and what to do. @param telling modules that tell their types. */
function absenceOf(name: KernelFunctionName, telling: readonly string[], source: TypeSource): string {
  const module = name === "bpf_ct_set_nat_info" ? "nf_nat" : "nf_conntrack";
  if (telling.includes(module)) return `neither this kernel nor its module ${module} has ${name}`;
  if (source.isLoaded(module)) {
    return `${name} is not in this kernel, and its module ${module} does not tell its types (CONFIG_DEBUG_INFO_BTF_MODULES)`;
  }
  return `${name} is not in this kernel, and the module ${module}, which may have it, is not loaded`;
}

function readKernelTypes(): Buffer {
  if (existsSync(KERNEL_TYPES)) return readFileSync(KERNEL_TYPES);
  const [types] = openTypes(["vmlinux"]);
  if (types === undefined) {
    throw new BpfError("unsupported", "bpf: the kernel does not tell its types (CONFIG_DEBUG_INFO_BTF)");
  }
  try {
    return types.read();
  } finally {
    types.close();
  }
}
