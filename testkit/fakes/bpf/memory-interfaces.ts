/** Interfaces in memory, and the programs that packets meet there. */
import type { BpfProgram, InterfaceLink } from "../../../src/kernel/bpf/bpf.ts";
import { BpfError } from "../../../src/kernel/bpf/bpf-error.ts";

export class MemoryInterfaces {
  /** Of those that are there. */
  readonly #indices = new Set<number>();
  readonly #links = new Set<MemoryInterfaceLink>();

  add(index: number): void {
    this.#indices.add(index);
  }

  /** It is gone for its links, also when another gets its number. */
  remove(index: number): void {
    this.#indices.delete(index);
    for (const link of this.#links) if (link.interfaceIndex === index) link.interfaceIndex = 0;
  }

  attach(program: BpfProgram, index: number): InterfaceLink {
    if (!this.#indices.has(index)) throw new BpfError("ENODEV", `bpf: LINK_CREATE of interface ${index}: ENODEV`);
    const link = new MemoryInterfaceLink(program, index, (gone) => this.#links.delete(gone));
    this.#links.add(link);
    return link;
  }

  attached(index: number): readonly number[] {
    return [...this.#links].filter(({ interfaceIndex }) => interfaceIndex === index).map((link) => link.programId);
  }
}

class MemoryInterfaceLink implements InterfaceLink {
  interfaceIndex: number;
  readonly #onClose: (link: MemoryInterfaceLink) => void;
  #program: BpfProgram;

  constructor(program: BpfProgram, index: number, onClose: (link: MemoryInterfaceLink) => void) {
    this.#program = program;
    this.interfaceIndex = index;
    this.#onClose = onClose;
  }

  get programId(): number {
    return this.#program.id;
  }

  replace(program: BpfProgram): void {
    if (this.interfaceIndex === 0) throw new BpfError("ENOLINK", "bpf: LINK_UPDATE: ENOLINK");
    this.#program = program;
  }

  close(): void {
    this.#onClose(this);
  }
}
