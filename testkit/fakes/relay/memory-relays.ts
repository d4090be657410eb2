/**
 * Sockets in memory: which ports are taken and which destination would be dialled, without carrying a byte. For tests
 * of the users of {@link Relays}; passes the applicable parts of the real ones' contract test.
 */
import { familyOf, type IpAddress, isUnspecified } from "../../../src/net/ip.ts";
import { ListenError, type ListenErrorCode, type ListenFacts } from "../../../src/relay/listen-error.ts";
import type {
  Destination,
  Relay,
  RelayOptions,
  RelayProtocol,
  RelaySession,
  Relays,
} from "../../../src/relay/relay.ts";

/** `other`: another program's. */
export type MemorySocketUse = "listening" | "held" | "other";

export interface MemorySocket extends ListenFacts {
  readonly use: MemorySocketUse;
}

const FIRST_EPHEMERAL_PORT = 32768;

class MemoryRelay implements Relay {
  readonly protocol: RelayProtocol;
  readonly address: IpAddress;
  readonly port: number;
  readonly #options: RelayOptions;
  readonly #giveBack: () => void;
  #open: { readonly client: Destination; readonly destination: Destination }[] = [];

  constructor(options: RelayOptions, port: number, giveBack: () => void) {
    this.protocol = options.protocol;
    this.address = options.address;
    this.port = port;
    this.#options = options;
    this.#giveBack = giveBack;
  }

  get connections(): number {
    return this.#open.length;
  }

  /** Picks as for a new client, and counts a connection if there is a destination. */
  connect(client: Destination): Destination | undefined {
    const { pick, observer } = this.#options;
    const destination = pick(client, 0);
    if (destination === undefined) {
      observer.refused(client, "no endpoint");
      return undefined;
    }
    this.#open.push({ client, destination });
    observer.opened(destination);
    return destination;
  }

  close(): Promise<void> {
    this.#giveBack();
    if (this.protocol === "UDP") this.endConnections(() => true);
    return Promise.resolve();
  }

  async drain(_timeoutMs: number): Promise<void> {
    await this.close();
    this.endConnections(() => true);
  }

  sessions(): Iterable<RelaySession> {
    return this.#open.map((open) => ({ ...open, cut: () => this.endConnections((one) => one === open.destination) }));
  }

  /** Ends the connections for which `isMeant` returns true. */
  endConnections(isMeant: (destination: Destination) => boolean): void {
    const ended = this.#open.filter(({ destination }) => isMeant(destination));
    this.#open = this.#open.filter((one) => !ended.includes(one));
    for (const { destination } of ended) this.#options.observer.closed(destination);
  }
}

export class MemoryRelays implements Relays {
  readonly #sockets = new Set<MemorySocket>();
  /** By {@link portKey}. */
  readonly #byPort = new Map<string, Set<MemorySocket>>();
  #nextPort = FIRST_EPHEMERAL_PORT;
  readonly #relays = new Map<MemorySocket, MemoryRelay>();
  /** This host's addresses, or `undefined` for any. */
  localAddresses: readonly IpAddress[] | undefined;
  /** Called before anything is opened: a code makes it fail. */
  failWith: (facts: ListenFacts) => ListenErrorCode | undefined = () => undefined;

  /** All sockets, in the order of opening. */
  get sockets(): readonly MemorySocket[] {
    return [...this.#sockets];
  }

  /** Another program takes a port; disposing releases it. */
  takePort(protocol: RelayProtocol, address: IpAddress, port: number): Disposable {
    const socket = this.#open({ protocol, address, port }, "other");
    return { [Symbol.dispose]: () => this.#drop(socket) };
  }

  /** The relay that a client of this address and port would reach. */
  relayAt(protocol: RelayProtocol, address: IpAddress, port: number): MemoryRelay | undefined {
    const socket = this.#conflicting({ protocol, address, port });
    return socket === undefined ? undefined : this.#relays.get(socket);
  }

  async listen(options: RelayOptions): Promise<Relay> {
    await Promise.resolve(); // as late as real sockets
    const socket = this.#open(options, "listening");
    const relay = new MemoryRelay(options, socket.port, () => {
      this.#drop(socket);
      this.#relays.delete(socket);
    });
    this.#relays.set(socket, relay);
    return relay;
  }

  async hold(protocol: RelayProtocol, address: IpAddress, port: number): Promise<AsyncDisposable> {
    await Promise.resolve();
    const socket = this.#open({ protocol, address, port }, "held");
    return { [Symbol.asyncDispose]: async () => this.#drop(socket) };
  }

  #open(wanted: ListenFacts, use: MemorySocketUse): MemorySocket {
    const facts = { protocol: wanted.protocol, address: wanted.address, port: wanted.port || this.#freePort(wanted) };
    const code = this.failWith(facts) ?? this.#obstacle(facts);
    if (code !== undefined) throw new ListenError(code, facts);
    const socket = { ...facts, use };
    this.#sockets.add(socket);
    const key = portKey(socket);
    this.#byPort.set(key, (this.#byPort.get(key) ?? new Set()).add(socket));
    return socket;
  }

  #drop(socket: MemorySocket): void {
    this.#sockets.delete(socket);
    this.#byPort.get(portKey(socket))?.delete(socket);
  }

  #obstacle(facts: ListenFacts): ListenErrorCode | undefined {
    const { address } = facts;
    const isLocal = isUnspecified(address) || (this.localAddresses?.includes(address) ?? true);
    if (!isLocal) return "address_not_local";
    return this.#conflicting(facts) === undefined ? undefined : "port_in_use";
  }

  #conflicting({ protocol, address, port }: ListenFacts): MemorySocket | undefined {
    const isSame = (other: MemorySocket): boolean =>
      other.address === address ||
      ((isUnspecified(other.address) || isUnspecified(address)) && familyOf(other.address) === familyOf(address));
    return [...(this.#byPort.get(portKey({ protocol, port })) ?? [])].find(isSame);
  }

  #freePort(wanted: ListenFacts): number {
    while (this.#conflicting({ ...wanted, port: this.#nextPort }) !== undefined) this.#nextPort++;
    return this.#nextPort;
  }
}

const portKey = ({ protocol, port }: Pick<ListenFacts, "protocol" | "port">): string => `${protocol} ${port}`;
