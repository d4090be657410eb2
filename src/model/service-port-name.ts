/** The identity of a service port (reference services.md §4). */
import { flatText } from "../net/compact.ts";
import type { Protocol } from "../net/protocol.ts";

export interface ServicePortName {
  readonly namespace: string;
  readonly name: string;
  /** Port name; empty if unnamed. */
  readonly port: string;
  readonly protocol: Protocol;
  /** `namespace/name`. */
  readonly service: string;
  /** `namespace/name:port`, or `namespace/name` if the port is unnamed. Not unique across protocols. */
  readonly text: string;
  /** Unique over all four parts; the key of every map of service ports. */
  readonly key: string;
}

/** Builds a name from its four parts. */
export function servicePortName(namespace: string, name: string, port: string, protocol: Protocol): ServicePortName {
  const service = flatText(namespace, "/", name);
  const text = port === "" ? service : flatText(service, ":", port);
  return { namespace, name, port, protocol, service, text, key: flatText(text, "/", protocol) };
}

/** {@link ServicePortName.key} from the four parts of a name. */
export function servicePortKey(namespace: string, name: string, port: string, protocol: Protocol): string {
  return port === ""
    ? flatText(namespace, "/", name, "/", protocol)
    : flatText(namespace, "/", name, ":", port, "/", protocol);
}

/** The `namespace/name` in a {@link ServicePortName.key}. */
export function serviceOfKey(key: string): string {
  const end = /[:/]/g;
  end.lastIndex = key.indexOf("/") + 1;
  return key.slice(0, end.exec(key)?.index);
}
