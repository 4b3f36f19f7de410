export const day = 86_400_000

// endOf says how near the end of a certificate is, as a status and a word. One that the director renews by itself may
// live for hours: it ends soon in the last quarter of its life at most.
export function endOf(
  c: { name: string; cluster?: string; begins_at: string; ends_at: string },
  now: Date,
): { of: string; word: string } {
  const end = new Date(c.ends_at).getTime()
  const left = end - now.getTime()
  const renewed = !c.cluster && c.name === 'director-acme'
  const soon = renewed ? Math.min(30 * day, (end - new Date(c.begins_at).getTime()) / 4) : 30 * day
  if (left < 0) return { of: 'failed', word: 'ended' }
  if (left < soon) return { of: 'late', word: 'ends soon' }
  return { of: 'ok', word: 'good' }
}
