import { memo, type UIEvent } from 'react'
import { keepPreviousData } from '@tanstack/react-query'
import { api, list, type Schemas } from '../api/client'
import { phaseOf, stepPath } from '../plan/plan'
import { FilterBar, Pages, TextFilter } from '../ui/filters'
import { Gradually } from '../ui/gradually'
import { columnsOf } from '../ui/longTable'
import { Answer, Nothing } from '../ui/page'
import { RowLink } from '../ui/rowLink'
import { Status } from '../ui/status'
import { useFilters } from '../ui/url'

// PlanMatrix shows how far each phase of a plan is for each node.
export function PlanMatrix({ plan }: { plan: string }) {
  const filters = useFilters()
  const asked = api.useQuery(
    'get',
    '/plans/{id}/matrix',
    {
      params: {
        path: { id: plan },
        query: {
          q: filters.get('node') || undefined,
          continue: filters.get('continue') || undefined,
          limit: 100,
        },
      },
    },
    { placeholderData: keepPreviousData }, // the rows of before stay until those of the new filter are there
  )
  return (
    <>
      <FilterBar>
        <TextFilter filters={filters} name="node" label="Node" />
      </FilterBar>
      <Answer of={asked}>
        {(matrix) => (
          <>
            {list(matrix.rows).length === 0 ? (
              <Nothing title="No node is like this." />
            ) : (
              <div className="wide" tabIndex={0} role="region" aria-label="Nodes and phases" onScroll={stick}>
                <table role="table" className="matrix" style={columnsOf(widths(matrix))}>
                  <thead role="rowgroup">
                    <tr role="row">
                      <th role="columnheader">node</th>
                      {matrix.groups.map((g) => (
                        <th key={g.name} role="columnheader">
                          {phaseOf(g.name)}
                        </th>
                      ))}
                    </tr>
                  </thead>
                  <tbody role="rowgroup">
                    <Gradually of={matrix.rows} name={(r) => r.node ?? ''} most={12}>
                      {(r) => <MatrixRow plan={plan} groups={matrix.groups} of={r} />}
                    </Gradually>
                  </tbody>
                </table>
              </div>
            )}
            <Pages filters={filters} next={matrix.continue} />
          </>
        )}
      </Answer>
    </>
  )
}

// stick keeps the names of nodes in sight while the rest is scrolled aside. Before, that would only cost: the browser
// draws each cell that may stick by itself.
function stick({ currentTarget: box }: UIEvent<HTMLElement>) {
  box.classList.toggle('scrolled', box.scrollLeft !== 0)
}

type Cell = Schemas['MatrixRow']['cells'][number]

const wordOf = (c: Cell) => (c.steps > 1 ? `${c.done}/${c.steps}` : c.status)

const around = 4 // characters that the symbol of a status takes

// widths is what the longest word of each column needs. A character is seldom as wide as the figure that ch stands for.
function widths({ rows, groups }: Schemas['Matrix']): string {
  const names = Math.max(...rows.map((r) => (r.node ?? '').length), 'the cluster'.length)
  const phases = groups.map((g) => phaseOf(g.name).length)
  for (const row of rows) {
    for (const c of row.cells) phases[c.group] = Math.max(phases[c.group] ?? 0, wordOf(c).length + around)
  }
  return [names, ...phases].map((n) => `calc(${0.85 * n}ch + 1rem)`).join(' ')
}

interface MatrixRowProps {
  plan: string
  groups: Schemas['StepGroup'][]
  of: Schemas['MatrixRow']
}

// MatrixRow is drawn again only when its steps have changed.
const MatrixRow = memo(
  function MatrixRow({ plan, groups, of: row }: MatrixRowProps) {
    const cells = new Map(row.cells.map((c) => [c.group, c]))
    return (
      <tr role="row">
        <th role="rowheader">{row.node ?? 'the cluster'}</th>
        {groups.map((g, i) => {
          const c = cells.get(i)
          return (
            <td key={g.name} role="cell">
              {c && (
                <RowLink
                  to={stepPath(plan, c.step)}
                  aria-label={`${row.node ?? 'the cluster'}, ${phaseOf(g.name)}: ${c.status}`}
                >
                  <Status of={c.status} word={wordOf(c)} />
                </RowLink>
              )}
            </td>
          )
        })}
      </tr>
    )
  },
  (a, b) => a.plan === b.plan && a.of === b.of && a.groups.length === b.groups.length,
)
