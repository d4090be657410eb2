/** The programs of one family, and where they are attached. */
import type { Bpf, BpfLink, BpfProgram } from "../../kernel/bpf/bpf.ts";
import { CONNECT_HOOKS, type ConnectKind, connectProgram } from "../../kernel/bpf/socket-balancer/connect.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { OpenMaps } from "./socket-maps.ts";

/** An IPv6 socket that connects to `::ffff:a.b.c.d` asks for an IPv4 service. */
const KINDS: Readonly<Record<IpFamily, readonly ConnectKind[]>> = { IPv4: ["IPv4", "mapped"], IPv6: ["IPv6"] };

export class SocketPrograms {
  readonly #bpf: Bpf;
  readonly #kinds: readonly ConnectKind[];
  #programs: readonly BpfProgram[] = [];
  #links: readonly BpfLink[] = [];

  constructor(bpf: Bpf, family: IpFamily) {
    this.#bpf = bpf;
    this.#kinds = KINDS[family];
  }

  get isAttached(): boolean {
    return this.#links.length > 0;
  }

  /** Loads the programs over these maps. What is attached is replaced, one by one, without a moment without. @throws BpfError */
  load({ definitions, maps }: OpenMaps): void {
    const old = this.#programs;
    const loaded: BpfProgram[] = [];
    try {
      for (const kind of this.#kinds) {
        const program = connectProgram(kind, definitions, { protocols: ["TCP"] });
        loaded.push(this.#bpf.loadProgram(program, CONNECT_HOOKS[kind], maps));
      }
      for (const [index, link] of this.#links.entries()) {
        const program = loaded[index];
        if (program !== undefined) link.replace(program);
      }
    } catch (error) {
      closeAll(loaded);
      throw error;
    }
    this.#programs = loaded;
    closeAll(old);
  }

  /** From now on they decide about connections of processes in the cgroup. All are attached, or none. @throws BpfError */
  attach(cgroup: string): void {
    const links: BpfLink[] = [];
    try {
      for (const [index, program] of this.#programs.entries()) {
        links.push(this.#bpf.attach(program, CONNECT_HOOKS[this.#kinds[index] ?? "IPv4"], cgroup));
      }
    } catch (error) {
      closeAll(links);
      throw error;
    }
    this.#links = links;
  }

  /** Whether the cgroup that they were attached to is gone. */
  get isOrphaned(): boolean {
    return this.#links.some(({ cgroupId }) => cgroupId === 0n);
  }

  close(): void {
    closeAll(this.#links);
    closeAll(this.#programs);
    this.#links = [];
    this.#programs = [];
  }
}

function closeAll(parts: readonly { close(): void }[]): void {
  for (const part of parts) part.close();
}
