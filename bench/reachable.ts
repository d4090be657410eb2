/** The addresses of a bench's cluster, in a network namespace that has nothing but `lo`. */
import { execFileSync } from "node:child_process";

export const NODE_ADDRESS = "10.200.0.2";

/** All endpoints are here, and cluster IPs have a way out, which they leave before they take it. */
export function makeReachable(): void {
  const ip = (words: string): void => void execFileSync("ip", words.split(" "));
  ip(`address add ${NODE_ADDRESS}/32 dev lo`);
  ip(`route add local 10.128.0.0/9 dev lo src ${NODE_ADDRESS}`);
  ip(`route add 10.96.0.0/12 dev lo src ${NODE_ADDRESS}`);
}
