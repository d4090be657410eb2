/** The program for packets of one family, and the interfaces where packets meet it. */
import type { Bpf, BpfMap, BpfProgram, InterfaceLink } from "../../kernel/bpf/bpf.ts";
import { hasBpfCode } from "../../kernel/bpf/bpf-error.ts";
import { type PacketOptions, packetProgram } from "../../kernel/bpf/packet-balancer/lead-packet.ts";
import { ownAddressesMap, packetClientsMap } from "../../kernel/bpf/packet-balancer/maps.ts";
import { type IpAddress, type IpFamily, ipBytes } from "../../net/ip.ts";
import type { OpenMaps } from "./open-maps.ts";

const PRESENT = new Uint8Array(4);

export class PacketPrograms {
  readonly #bpf: Bpf;
  readonly #family: IpFamily;
  readonly #options: PacketOptions;
  readonly #clients: BpfMap;
  readonly #own: BpfMap;
  #ownAddresses: ReadonlySet<IpAddress> = new Set();
  #program: BpfProgram | undefined;
  /** By the interface's index. */
  readonly #links = new Map<number, InterfaceLink>();

  /** @throws BpfError */
  constructor(bpf: Bpf, family: IpFamily, options: PacketOptions) {
    this.#bpf = bpf;
    this.#family = family;
    this.#options = options;
    this.#clients = bpf.createMap(packetClientsMap(family));
    try {
      this.#own = bpf.createMap(ownAddressesMap(family));
    } catch (error) {
      this.#clients.close();
      throw error;
    }
  }

  /** Number of interfaces where packets meet the program. */
  get interfaces(): number {
    return this.#links.size;
  }

  /** What is led to one of these stays in the node. @throws BpfError */
  setOwnAddresses(addresses: ReadonlySet<IpAddress>): void {
    const before = this.#ownAddresses;
    this.#ownAddresses = addresses;
    for (const gone of before) if (!addresses.has(gone)) this.#own.delete(ipBytes(gone));
    for (const added of addresses) if (!before.has(added)) this.#own.update(ipBytes(added), PRESENT);
  }

  /** Loads the program over these maps. Where one is attached it is replaced, without a moment without. @throws BpfError */
  load({ definitions, maps }: OpenMaps): void {
    const { frontends, slots, backends, nodeAddresses } = definitions;
    const [packetClients, ownAddresses] = [this.#clients.definition, this.#own.definition];
    const all = { frontends, slots, backends, nodeAddresses, ownAddresses, packetClients };
    const program = packetProgram(this.#family, all, this.#options);
    const used = [...maps, this.#clients, this.#own].filter(({ definition }) => program.maps.includes(definition));
    const loaded = this.#bpf.loadProgram(program, "ingress", used);
    try {
      for (const [index, link] of this.#links) {
        if (link.interfaceIndex === 0) this.#detach(index);
        else link.replace(loaded);
      }
    } catch (error) {
      loaded.close();
      throw error;
    }
    this.#program?.close();
    this.#program = loaded;
  }

  /** From now on packets meet the program at these interfaces, and at no others. @throws BpfError */
  attach(indices: ReadonlySet<number>): void {
    const program = this.#program;
    if (program === undefined) return;
    for (const [index, link] of this.#links) {
      // One that is gone may have left its number to another.
      if (!indices.has(index) || link.interfaceIndex !== index) this.#detach(index);
    }
    for (const index of indices) {
      if (this.#links.has(index)) continue;
      try {
        this.#links.set(index, this.#bpf.attachToInterface(program, index));
      } catch (error) {
        // It went meanwhile: that is announced.
        if (!hasBpfCode(error, "ENODEV")) throw error;
      }
    }
  }

  close(): void {
    for (const index of [...this.#links.keys()]) this.#detach(index);
    this.#program?.close();
    this.#program = undefined;
    this.#clients.close();
    this.#own.close();
  }

  #detach(index: number): void {
    this.#links.get(index)?.close();
    this.#links.delete(index);
  }
}
