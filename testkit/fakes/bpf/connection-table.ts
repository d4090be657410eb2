/** The kernel's table of connections, as programs see it, for the interpreter. Addresses and ports are as in packets. */
import { MemoryFault } from "./memory-region.ts";

/** What an end of a connection is to be. */
export interface NewEnd {
  readonly address: Uint8Array;
  /** 0: any. */
  readonly port: number;
}

/** An entry before and after it is in the table. */
export interface Connection {
  /** Source and destination address, source and destination port. */
  readonly tuple: Uint8Array;
  readonly protocol: number;
  source?: NewEnd;
  destination?: NewEnd;
  timeoutMs?: number;
}

/** A reference that a program holds. */
export interface ConnectionReference {
  readonly connection: Connection;
  isGivenBack: boolean;
}

const keyOf = (tuple: Uint8Array, protocol: number): string => `${protocol} ${Buffer.from(tuple).toString("hex")}`;

export class ConnectionTable {
  readonly #entries = new Map<string, Connection>();
  readonly #references: ConnectionReference[] = [];

  get connections(): readonly Connection[] {
    return [...this.#entries.values()];
  }

  /** @throws MemoryFault when a program has ended and holds a reference, which the verifier never allows. */
  demandNoReferences(): void {
    if (this.#references.some(({ isGivenBack }) => !isGivenBack))
      throw new MemoryFault("a reference was not given back");
  }

  lookup(tuple: Uint8Array, protocol: number): ConnectionReference | undefined {
    const connection = this.#entries.get(keyOf(tuple, protocol));
    return connection === undefined ? undefined : this.#refer(connection);
  }

  alloc(tuple: Uint8Array, protocol: number): ConnectionReference {
    return this.#refer({ tuple: tuple.slice(), protocol });
  }

  /** Takes the reference. */
  insert(reference: ConnectionReference): ConnectionReference | undefined {
    const { connection } = reference;
    this.giveBack(reference);
    const key = keyOf(connection.tuple, connection.protocol);
    if (this.#entries.has(key)) return undefined;
    this.#entries.set(key, connection);
    return this.#refer(connection);
  }

  giveBack(reference: ConnectionReference): void {
    if (reference.isGivenBack) throw new MemoryFault("a reference was given back twice");
    reference.isGivenBack = true;
  }

  #refer(connection: Connection): ConnectionReference {
    const reference = { connection, isGivenBack: false };
    this.#references.push(reference);
    return reference;
  }
}
