import { Checkbox, Content, FormGroup, TextInput } from '@patternfly/react-core'
import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'react-router'
import { client, type Schemas } from '../api/client'
import { must } from '../api/must'
import { Actions } from '../ui/actions'
import { Ask, AskButton } from '../ui/ask'
import { Command, quoted } from '../ui/command'
import { maintenancePath } from './nodes'

type Finding = Schemas['Finding']

// FindingFix offers what puts a finding of the ledger right. docs/use/ledger.md says which kind has which.
export function FindingFix({ of, mayAct }: { of: Finding; mayAct: boolean }) {
  const owned = of.vm !== undefined && (of.kind === 'orphan' || of.kind === 'fenced')
  const node = of.cluster && (of.kind === 'ghost' || of.kind === 'lost-host')
  return (
    <>
      <span className="mono break">{of.next}</span>
      {mayAct && owned && (
        <Actions>
          {of.kind === 'orphan' && <Adopt of={of} />}
          <Reclaim of={of} />
        </Actions>
      )}
      {mayAct && node && (
        <p>
          <Link to={maintenancePath(of.cluster ?? '', [of.name], 'node.replace')}>Replace the node</Link>
        </p>
      )}
    </>
  )
}

function useFix(of: Finding) {
  const queries = useQueryClient()
  return {
    path: { name: of.provider, vm: of.vm ?? '' },
    changed: () => queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/vms/audit' }),
  }
}

function Adopt({ of }: { of: Finding }) {
  const { path, changed } = useFix(of)
  const [address, setAddress] = useState('')
  const option = address && ` --address ${quoted(address)}`
  return (
    <AskButton
      size="sm"
      variant="secondary"
      ask={(close) => (
        <Ask
          title={`Adopt ${of.name}?`}
          verb="Adopt"
          close={close}
          act={async () => {
            await must(
              client.POST('/providers/{name}/vms/{vm}/adopt', {
                params: { path },
                body: { address: address || undefined },
              }),
            )
            await changed()
          }}
        >
          <Content component="p">The ledger gets a row for the VM. The VM itself stays as it is.</Content>
          <FormGroup label="Its address, if the director does not remember it" fieldId="adopt-address">
            <TextInput id="adopt-address" value={address} onChange={(_, v) => setAddress(v)} />
          </FormGroup>
          <Command>{`directorctl vms adopt ${quoted(of.provider)} ${quoted(of.vm ?? '')}${option}`}</Command>
        </Ask>
      )}
    >
      Adopt
    </AskButton>
  )
}

function Reclaim({ of }: { of: Finding }) {
  const { path, changed } = useFix(of)
  const [disks, setDisks] = useState(false)
  return (
    <AskButton
      size="sm"
      variant="secondary"
      isDanger
      ask={(close) => (
        <Ask
          title={`Reclaim ${of.name}?`}
          verb="Delete the VM"
          danger
          close={close}
          act={async () => {
            await must(
              client.POST('/providers/{name}/vms/{vm}/reclaim', {
                params: { path },
                body: { data_disks: disks || undefined },
              }),
            )
            await changed()
          }}
        >
          <Content component="p">The VM is destroyed with its root disk.</Content>
          <Checkbox
            id="reclaim-disks"
            label="Destroy its data disks too"
            isChecked={disks}
            onChange={(_, v) => setDisks(v)}
          />
          <Command>
            {`directorctl vms reclaim ${quoted(of.provider)} ${quoted(of.vm ?? '')}${disks ? ' --data-disks' : ''}`}
          </Command>
        </Ask>
      )}
    >
      Reclaim
    </AskButton>
  )
}
