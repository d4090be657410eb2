/** Which test files need their own process: those that measure it, or change its global state. */

/** Text that marks such a file. */
const OF_THE_PROCESS = [
  // They measure: the work of other files would count.
  /\bmonitorEventLoopDelay\b|\bBusyClock\b|\bwaitedForProcessorMs\b|\beventLoopUtilization\b|\bgetActiveResourcesInfo\b/,
  /\bprocess\.(?:memoryUsage|cpuUsage|resourceUsage)\b|\/proc\/self\b|\b(?:globalThis|global)\.gc\b/,
  // They change global state: other files would notice.
  /\bprocess\.(?:on|once|emit|chdir|umask|exit)\(|\bprocess\.env(?:\.\w+|\[[^\]]+\]) = |\bdelete process\.env\b/,
  /\bmock\.timers\b|\bsetFlagsFromString\b/,
];

/**
 * Whether a file with this source must not share a process with other files.
 *
 * @param source the text of a test file.
 */
export function needsOwnProcess(source: string): boolean {
  return OF_THE_PROCESS.some((sign) => sign.test(source));
}
