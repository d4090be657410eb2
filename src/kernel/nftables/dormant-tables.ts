/** Tables whose chains the kernel does not call. nft before 1.1.3 prints something else in the place of a table's flags. */
import { NFPROTO_IPV4, NFPROTO_IPV6 } from "../netlink/nfnetlink.ts";
import { NFT_TABLE_F_DORMANT } from "./wire/constants.ts";
import { openNftables } from "./wire/nftables-client.ts";

/** include/uapi/linux/netfilter.h */
const NFPROTO_INET = 1;
const FAMILIES = { ip: NFPROTO_IPV4, ip6: NFPROTO_IPV6, inet: NFPROTO_INET };

/** In this process's network namespace, as `family name`. @throws NetlinkError */
export async function dormantTables(): Promise<ReadonlySet<string>> {
  await using client = openNftables();
  const found = new Set<string>();
  for (const [family, nfproto] of Object.entries(FAMILIES)) {
    for (const { name, flags = 0 } of await client.tables(nfproto))
      if ((flags & NFT_TABLE_F_DORMANT) !== 0) found.add(`${family} ${name}`);
  }
  return found;
}
