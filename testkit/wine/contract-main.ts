/** What Node.js for Windows runs under Wine: the contracts of Windows-only interfaces. */
import "./hcn-contract-main.ts";
import { runNetshContract } from "../../src/modes/userspace/testing/netsh-contract.ts";
import { windowsNetsh } from "../../src/modes/userspace/windows-host.ts";

runNetshContract({ name: "under Wine", host: windowsNetsh, interfaceName: process.env.CONTRACT_INTERFACE ?? "" });
