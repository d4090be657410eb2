/** Interfaces in memory, and the programs that packets meet there. */
import type { BpfProgram, InterfaceLink } from "../../../src/kernel/bpf/bpf.ts";
import { BpfError } from "../../../src/kernel/bpf/bpf-error.ts";

export class MemoryInterfaces {
  /** Of those that are there; may be changed: one that is taken away is gone for its links. */
  readonly indices = new Set<number>();
  readonly #links = new Set<MemoryInterfaceLink>();

  attach(program: BpfProgram, index: number): InterfaceLink {
    if (!this.indices.has(index)) throw new BpfError("ENODEV", `bpf: LINK_CREATE of interface ${index}: ENODEV`);
    const link = new MemoryInterfaceLink(program, index, this.indices, (gone) => this.#links.delete(gone));
    this.#links.add(link);
    return link;
  }

  attached(index: number): readonly number[] {
    return [...this.#links].filter(({ interfaceIndex }) => interfaceIndex === index).map((link) => link.programId);
  }
}

class MemoryInterfaceLink implements InterfaceLink {
  readonly #index: number;
  readonly #indices: ReadonlySet<number>;
  readonly #onClose: (link: MemoryInterfaceLink) => void;
  #program: BpfProgram;

  constructor(
    program: BpfProgram,
    index: number,
    indices: ReadonlySet<number>,
    onClose: (link: MemoryInterfaceLink) => void,
  ) {
    this.#program = program;
    this.#index = index;
    this.#indices = indices;
    this.#onClose = onClose;
  }

  get interfaceIndex(): number {
    return this.#indices.has(this.#index) ? this.#index : 0;
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
