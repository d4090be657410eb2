/** The `IP:port` texts of `healthzBindAddress` and `metricsBindAddress`. */
import { type IpAddress, parseIpAddress } from "../../../net/ip.ts";

const HOST_PORT = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\+?\d+)$/;

/** Splits `10.0.0.1:80` or `[::1]:80`; port 0 is allowed. @returns `undefined` if the text is not `IP:port`. */
export function parseListenAddress(text: string): { readonly host: IpAddress; readonly port: number } | undefined {
  const match = HOST_PORT.exec(text);
  const host = parseIpAddress(match?.[1] ?? match?.[2] ?? "");
  const port = Number(match?.[3]);
  return match === null || host === undefined || port > 65535 ? undefined : { host, port };
}
