import type { Schemas } from '../api/client'
import { acts, useMe } from '../app/me'
import { RowLink } from '../ui/rowLink'

// Newer says which newer version a cluster can be upgraded to, and leads to what an upgrade would do.
export function Newer({ of }: { of: Schemas['Cluster'] }) {
  const me = useMe()
  if (!of.newer) return null
  const { release, version } = of.newer
  const text = `${version} is available`
  if (!acts(me, of)) return <>{text}</>
  const asked = new URLSearchParams({ name: `${of.name} to ${version}`, clusters: of.name, release })
  return <RowLink to={`/campaigns/new?${asked.toString()}`}>{text}</RowLink>
}
