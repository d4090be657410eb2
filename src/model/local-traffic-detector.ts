/** What tells a packet of a local pod from others, as data; each backend spells it (reference core.md §10). */
import type { Cidr } from "../net/ip.ts";

export type LocalTrafficDetector =
  | { readonly kind: "none" }
  | { readonly kind: "cidr"; readonly cidr: Cidr }
  | { readonly kind: "interface"; readonly name: string }
  | { readonly kind: "interface-prefix"; readonly prefix: string };
