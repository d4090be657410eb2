/** Programs and links of the running kernel, identified by their descriptors. */
import { closeSync } from "node:fs";
import { LINK_DETACH, LINK_INFO, LINK_UPDATE, PROGRAM_INFO } from "./attributes.ts";
import type { BpfLink, BpfMap, BpfProgram } from "./bpf.ts";
import { BpfError } from "./bpf-error.ts";
import { KernelMap } from "./kernel-map.ts";
import { encode, takeNumber, takeWide } from "./layout.ts";
import { bpf, objectInfo, tryBpf } from "./system-call.ts";

/** Flag of LINK_UPDATE: fail unless the current program is the given one. */
const REPLACE = 4;

export function descriptorOf(what: BpfMap | BpfProgram | BpfLink): number {
  if (what instanceof KernelMap || what instanceof KernelProgram || what instanceof KernelLink) return what.fd;
  throw new BpfError("invalid", "bpf: this object belongs to another kernel");
}

export class KernelProgram implements BpfProgram {
  readonly fd: number;
  readonly id: number;

  constructor(fd: number, name: string) {
    this.fd = fd;
    const info = objectInfo(fd, PROGRAM_INFO.size, `program ${name}`);
    this.id = takeNumber(info, PROGRAM_INFO.fields.id);
  }

  close(): void {
    closeSync(this.fd);
  }
}

export class KernelLink implements BpfLink {
  readonly fd: number;
  readonly #what: string;

  /** @param what it is, for error messages. */
  constructor(fd: number, what: string) {
    this.fd = fd;
    this.#what = what;
  }

  get cgroupId(): bigint {
    return takeWide(this.#info(), LINK_INFO.fields.cgroupId);
  }

  get id(): number {
    return takeNumber(this.#info(), LINK_INFO.fields.id);
  }

  get programId(): number {
    return takeNumber(this.#info(), LINK_INFO.fields.programId);
  }

  replace(program: BpfProgram, old?: BpfProgram): void {
    const replaced = old === undefined ? {} : { flags: REPLACE, oldProgramFd: descriptorOf(old) };
    const update = { linkFd: this.fd, newProgramFd: descriptorOf(program), ...replaced };
    bpf("LINK_UPDATE", encode(LINK_UPDATE, update), this.#what);
  }

  close(): void {
    // Closing alone also detaches, but only later.
    tryBpf("LINK_DETACH", encode(LINK_DETACH, { linkFd: this.fd }));
    closeSync(this.fd);
  }

  release(): void {
    closeSync(this.fd);
  }

  #info(): Uint8Array {
    return objectInfo(this.fd, LINK_INFO.size, this.#what);
  }
}
