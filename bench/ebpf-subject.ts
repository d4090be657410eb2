/** The ebpf mode over the kernel of this process's network namespace. */

import type { Backend } from "../src/contract/backend.ts";
import type { Bpf } from "../src/kernel/bpf/bpf.ts";
import type { EbpfBackend } from "../src/modes/ebpf/backend.ts";
import { ebpfBackend } from "./backends.ts";
import { Subject } from "./subject.ts";

export class EbpfSubject extends Subject {
  declare backend: EbpfBackend;

  constructor(endpointsEach: number, packetPath: Backend, cgroup: string, bpf?: Bpf) {
    super(endpointsEach, () => ebpfBackend(packetPath, cgroup, bpf));
  }

  /** @throws Error if connections are not decided at the socket afterwards. */
  override async fullSync(): Promise<void> {
    await super.fullSync();
    if (!this.backend.socketPath.isAttached) throw new Error("nothing is decided at the socket");
  }
}
