import { Table, Tbody, Thead } from '@patternfly/react-table'
import { Link } from 'react-router'
import { api, list } from '../api/client'
import { acts, useMe } from '../app/me'
import { Td, Th, Tr } from '../ui/cells'
import { LinkButton } from '../ui/linkButton'
import { Answer, Nothing, Page } from '../ui/page'
import { Status } from '../ui/status'
import { Time } from '../ui/time'
import { countsText, targetText } from './campaignText'

export default function Campaigns() {
  const me = useMe()
  const asked = api.useQuery('get', '/campaigns', {}, { refetchInterval: 15_000 })
  return (
    <Page title="Campaigns" actions={acts(me) && <LinkButton to="/campaigns/new">New campaign</LinkButton>}>
      <Answer of={asked}>
        {(c) =>
          list(c.items).length === 0 ? (
            <Nothing title="There is no campaign.">
              A campaign brings one change to many clusters, wave by wave.
            </Nothing>
          ) : (
            <Table role="table" aria-label="Campaigns" variant="compact">
              <Thead>
                <Tr>
                  <Th width={30}>Campaign</Th>
                  <Th>Target</Th>
                  <Th>Status</Th>
                  <Th>Wave</Th>
                  <Th>Clusters</Th>
                  <Th>Made</Th>
                </Tr>
              </Thead>
              <Tbody>
                {list(c.items).map((one) => (
                  <Tr key={one.id}>
                    <Td dataLabel="Campaign">
                      <Link to={`/campaigns/${one.id}`} className="break">
                        {one.name}
                      </Link>
                    </Td>
                    <Td dataLabel="Target" className="break">
                      {targetText(one.target)}
                    </Td>
                    <Td dataLabel="Status">
                      <Status of={one.status} word={one.status} />
                    </Td>
                    <Td dataLabel="Wave">{one.wave > 0 ? `${one.wave} of ${list(one.waves).length}` : '–'}</Td>
                    <Td dataLabel="Clusters">{countsText(one.counts)}</Td>
                    <Td dataLabel="Made">
                      <Time at={one.created_at} />
                    </Td>
                  </Tr>
                ))}
              </Tbody>
            </Table>
          )
        }
      </Answer>
    </Page>
  )
}
