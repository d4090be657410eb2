/** The sockets of this process's network namespace. */
import type { Logger } from "../logging/logger.ts";
import type { IpAddress } from "../net/ip.ts";
import { DescriptorBudget, shareOfRelays } from "./descriptor-budget.ts";
import { FairTurns } from "./fair-turns.ts";
import { OwnDials } from "./own-dials.ts";
import { ReadBuffers } from "./read-buffers.ts";
import type { Relay, RelayOptions, RelayProtocol, Relays } from "./relay.ts";
import type { TcpShared } from "./tcp-connection.ts";
import { TcpRelay } from "./tcp-relay.ts";
import { UdpRelay, type UdpShared } from "./udp-relay.ts";
import { UserShares } from "./user-shares.ts";

interface NodeRelaysOptions {
  readonly log: Logger;
  /** The open-file limit; the relays leave a part of it to the rest of the program. */
  readonly fileLimit: number;
}

/** UDP sessions get one in this many of the relays' descriptors: forged senders must not shut out connections. */
const UDP_PART = 2;

export class NodeRelays implements Relays {
  readonly #tcp: TcpShared;
  readonly #udp: UdpShared;

  constructor({ log, fileLimit }: NodeRelaysOptions) {
    const share = shareOfRelays(fileLimit);
    const onShortage = (usedByRelays: number): void =>
      log.warn("Out of file descriptors: clients wait or are refused; raise the limit of open files", {
        fileLimit,
        usedByRelays,
      });
    const budget = new DescriptorBudget({ ...share, onShortage });
    const sessionLimit = Math.floor(share.limit / UDP_PART);
    const sessionBudget = new DescriptorBudget({
      limit: sessionLimit,
      parent: budget,
      onShortage: () => log.warn("Too many UDP sessions: datagrams of new clients are dropped", { sessionLimit }),
    });
    // A connection takes two.
    const users = new UserShares(Math.floor(share.limit / 2), (user, limit) =>
      log.warn("A user's processes have too many connections to node ports on loopback addresses", { user, limit }),
    );
    this.#tcp = { buffers: new ReadBuffers(), turns: new FairTurns(), budget, users, ownDials: new OwnDials(), log };
    this.#udp = { budget, sessionBudget, sessionsOf: new Map(), ownDials: new OwnDials(), log };
  }

  listen(options: RelayOptions): Promise<Relay> {
    return options.protocol === "TCP" ? TcpRelay.listen(options, this.#tcp) : UdpRelay.listen(options, this.#udp);
  }

  async hold(protocol: RelayProtocol, address: IpAddress, port: number): Promise<AsyncDisposable> {
    // Imported late because it calls the C library of Linux.
    const { holdPort } = await import("./held-port.ts");
    return holdPort({ protocol, address, port }, this.#tcp.budget);
  }
}
