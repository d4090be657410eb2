/** The kernel's IPVS over generic netlink. */

import { giveTurn, isTurnDue } from "../../../async/turns.ts";
import { NETLINK_GENERIC } from "../../../kernel/netlink/constants.ts";
import { isNotFound, type NetlinkError } from "../../../kernel/netlink/errors.ts";
import type { ReplyVisitor } from "../../../kernel/netlink/frames.ts";
import { familyId, genericPayload } from "../../../kernel/netlink/generic.ts";
import { MessageBuffer } from "../../../kernel/netlink/message-buffer.ts";
import { type CallOptions, NetlinkSocket } from "../../../kernel/netlink/socket.ts";
import { familyOf, type IpFamily } from "../../../net/ip.ts";
import {
  type Ipvs,
  type IpvsFailure,
  type IpvsOperation,
  type IpvsTimeouts,
  IpvsUnavailableError,
  ipvsFailure,
  type RealServerState,
  type VirtualServer,
  type VirtualServerKey,
} from "./ipvs.ts";
import {
  IPVS_FAMILY_NAME,
  type IpvsRequest,
  ipvsMessage,
  toConnections,
  toRealServer,
  toTimeouts,
  toVirtualServer,
  writeRequest,
} from "./ipvs-messages.ts";

/** Operations per batch of messages, about 200 bytes each. */
const OPERATIONS_PER_WINDOW = 256;
/** The initial buffer size, small because a restart sends one request per virtual server. */
const SMALL_REQUEST_BYTES = 256;
/** The kernel dumps a large table in large datagrams. */
const RECEIVE_BUFFER_BYTES = 1024 * 1024;

/** IPVS of this process's network namespace. */
export interface NetlinkIpvs extends Ipvs, AsyncDisposable {}

interface NetlinkIpvsOptions {
  /** Called when the kernel has no IPVS, before the second lookup. */
  readonly loadModule: () => Promise<void>;
}

/**
 * Opens the kernel's IPVS. Throws an {@link IpvsUnavailableError} if there is none even after `loadModule`; so does every
 * method while the module is unloaded.
 */
export async function openNetlinkIpvs(options: NetlinkIpvsOptions): Promise<NetlinkIpvs> {
  const socket = NetlinkSocket.open(NETLINK_GENERIC, { receiveBufferBytes: RECEIVE_BUFFER_BYTES });
  const ipvs = new GenericNetlinkIpvs(socket, options);
  try {
    await ipvs.findFamily();
  } catch (error) {
    await socket.close();
    throw error;
  }
  return ipvs;
}

class GenericNetlinkIpvs implements NetlinkIpvs {
  readonly #socket: NetlinkSocket;
  readonly #options: NetlinkIpvsOptions;
  #familyId = 0;

  constructor(socket: NetlinkSocket, options: NetlinkIpvsOptions) {
    this.#socket = socket;
    this.#options = options;
  }

  /** Looks up the id of the netlink family. @returns whether it has changed. */
  async findFamily(): Promise<boolean> {
    let id = await familyId(this.#socket, IPVS_FAMILY_NAME);
    if (id === undefined) {
      await this.#options.loadModule();
      id = await familyId(this.#socket, IPVS_FAMILY_NAME);
    }
    if (id === undefined) {
      throw new IpvsUnavailableError(
        "ipvs not supported by the kernel: the module ip_vs is missing: load it (modprobe ip_vs), " +
          "or install a kernel that has it, or choose another proxy mode",
      );
    }
    const isNew = id !== this.#familyId;
    this.#familyId = id;
    return isNew;
  }

  async virtualServers(family: IpFamily, signal?: AbortSignal): Promise<readonly VirtualServer[]> {
    const found: VirtualServer[] = [];
    await this.#request(
      { kind: "list-virtual-servers" },
      (message) => {
        const server = toVirtualServer(message);
        if (server !== undefined && familyOf(server.address) === family) found.push(server);
      },
      { signal },
    );
    return found;
  }

  async virtualServer(key: VirtualServerKey): Promise<VirtualServer | undefined> {
    return this.#get(key, toVirtualServer);
  }

  async connections(key: VirtualServerKey): Promise<number | undefined> {
    return this.#get(key, toConnections);
  }

  async realServers(key: VirtualServerKey, signal?: AbortSignal): Promise<readonly RealServerState[] | undefined> {
    // The kernel answers at once: without this, thousands of calls in a row would block the event loop.
    if (isTurnDue()) await giveTurn();
    const family = familyOf(key.address);
    const found: RealServerState[] = [];
    await this.#request(
      { kind: "list-real-servers", virtualServer: key },
      (message) => {
        const server = toRealServer(message, family);
        if (server !== undefined) found.push(server);
      },
      { signal },
    );
    if (found.length > 0 || (await this.virtualServer(key)) !== undefined) return found;
    return undefined;
  }

  async apply(operations: readonly IpvsOperation[], signal?: AbortSignal): Promise<readonly IpvsFailure[]> {
    const failures: IpvsFailure[] = [];
    for (let first = 0; first < operations.length; first += OPERATIONS_PER_WINDOW) {
      const window = operations.slice(first, first + OPERATIONS_PER_WINDOW);
      const errors = await this.#exchange(window, undefined, { signal });
      for (const { code, facts } of errors) {
        const operation = window[facts.request?.index ?? -1];
        if (operation !== undefined) failures.push(ipvsFailure(operation, code));
      }
    }
    return failures;
  }

  async flush(): Promise<void> {
    await this.#request({ kind: "flush" });
  }

  async timeouts(): Promise<IpvsTimeouts> {
    let timeouts: IpvsTimeouts = { tcp: 0, tcpFin: 0, udp: 0 };
    await this.#request({ kind: "get-timeouts" }, (message) => {
      timeouts = toTimeouts(message);
    });
    return timeouts;
  }

  async setTimeouts(timeouts: IpvsTimeouts): Promise<void> {
    await this.#request({ kind: "set-timeouts", timeouts });
  }

  close(): Promise<void> {
    return this.#socket.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #get<T>(key: VirtualServerKey, convert: (message: Message) => T | undefined): Promise<T | undefined> {
    let found: T | undefined;
    const [error] = await this.#exchange([{ kind: "get-virtual-server", virtualServer: key }], (message) => {
      found ??= convert(message);
    });
    if (error !== undefined && error.code !== "ESRCH") throw error;
    return found;
  }

  async #request(request: IpvsRequest, onMessage?: (message: Message) => void, options?: CallOptions): Promise<void> {
    const [error] = await this.#exchange([request], onMessage, options);
    if (error !== undefined) throw error;
  }

  /**
   * Sends requests; `onMessage` gets the answers. ENOENT may mean that the family is gone or was reloaded with another id: then
   * nothing was carried out, and the requests are sent again.
   */
  async #exchange(
    requests: readonly IpvsRequest[],
    onMessage?: (message: Message) => void,
    options?: CallOptions,
  ): Promise<readonly NetlinkError[]> {
    const onReply: ReplyVisitor = (reply) => {
      const { input, start, end } = genericPayload(reply);
      onMessage?.(ipvsMessage.read(input, start, end));
    };
    const send = (): Promise<readonly NetlinkError[]> => {
      const messages = new MessageBuffer(SMALL_REQUEST_BYTES);
      for (const request of requests) writeRequest(messages, this.#familyId, request);
      return this.#socket.exchange(messages, onReply, options);
    };
    const errors = await send();
    if (!errors.some(isNotFound)) return errors;
    return (await this.findFamily()) ? send() : errors;
  }
}

type Message = ReturnType<typeof ipvsMessage.read>;
