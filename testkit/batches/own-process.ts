/** Which test files need a process of their own: those that measure it, or change what belongs to all of it. */

/** What such a file says somewhere. */
const OF_THE_PROCESS = [
  // They measure: the work of other files would count.
  /\bmonitorEventLoopDelay\b|\bBusyClock\b|\bwaitedForProcessorMs\b|\beventLoopUtilization\b|\bgetActiveResourcesInfo\b/,
  /\bprocess\.(?:memoryUsage|cpuUsage|resourceUsage)\b|\/proc\/self\b|\b(?:globalThis|global)\.gc\b/,
  // They change: other files would meet it.
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
