/** Removes the rules and chains of the iptables mode. */
import type { CleanUp } from "../../contract/dataplane.ts";
import { cleanUpIptables, isIptablesChain } from "../shared/iptables-rules/remove-rules.ts";
import { cleanUpFamilies } from "../shared/iptables-tools.ts";

export const cleanUp: CleanUp = (log) =>
  cleanUpFamilies(isIptablesChain, (iptables) => cleanUpIptables(iptables, log), log);
