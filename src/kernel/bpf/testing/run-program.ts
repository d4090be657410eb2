/** Runs programs once, on request, over plain memory: the kernel cannot run cgroup hook programs that way (reference ebpf-programs.md §4.6). */
import { closeSync } from "node:fs";
import { PROG_LOAD } from "../attributes.ts";
import type { BpfMap } from "../bpf.ts";
import { KernelMap } from "../kernel-map.ts";
import { encode, layout, takeNumber, u32, u64 } from "../layout.ts";
import type { Program } from "../map-definition.ts";
import { addressOf, bpf, fixedBytes, fixedCopy } from "../system-call.ts";

export interface RunnableProgram {
  /** Runs it once. @param context may be changed by it. @returns r0, 32 bits. */
  run(context: Uint8Array): number;
  close(): void;
}

/** BPF_PROG_TYPE_SYSCALL, whose context is memory of the caller; BPF_F_SLEEPABLE. */
const [SYSCALL_PROGRAM, SLEEPABLE] = [31, 16];
const LOG_BYTES = 1 << 20;
const PROG_TEST_RUN = layout("PROG_TEST_RUN", 168, {
  programFd: u32(0),
  result: u32(4),
  contextSizeIn: u32(40),
  contextIn: u64(48),
});

/** @throws BpfError with the verifier's message. */
export function runnable(program: Program, maps: readonly BpfMap[] = []): RunnableProgram {
  const code = fixedCopy(program.code);
  const view = new DataView(code.buffer);
  for (const { at, map } of program.references) {
    const open = maps.find(({ definition }) => definition === map);
    if (!(open instanceof KernelMap)) throw new Error(`its map ${map.name} is not given`);
    view.setUint8(at + 1, view.getUint8(at + 1) | 0x10);
    view.setUint32(at + 4, open.fd, true);
  }
  const license = fixedCopy(Buffer.from("Apache-2.0\0"));
  const log = fixedBytes(LOG_BYTES);
  const wanted = encode(PROG_LOAD, {
    programType: SYSCALL_PROGRAM,
    programFlags: SLEEPABLE,
    instructionCount: code.length / 8,
    instructions: addressOf(code),
    license: addressOf(license),
    programName: Buffer.from(program.name),
    ...{ logLevel: 1, logSize: LOG_BYTES, logBuffer: addressOf(log) },
  });
  let fd: number;
  try {
    fd = bpf("PROG_LOAD", wanted, program.name);
  } catch (error) {
    throw new Error(Buffer.from(log.subarray(0, log.indexOf(0))).toString("latin1"), { cause: error });
  }
  return {
    run(context) {
      const memory = fixedCopy(context);
      const asked = { programFd: fd, contextSizeIn: memory.length, contextIn: addressOf(memory) };
      const run = encode(PROG_TEST_RUN, asked);
      bpf("PROG_TEST_RUN", run, program.name);
      context.set(memory);
      return takeNumber(run, PROG_TEST_RUN.fields.result);
    },
    close: () => closeSync(fd),
  };
}
