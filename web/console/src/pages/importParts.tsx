// What the imports of images and of release bundles have in common.
import { Button, FormGroup, FormSelect, FormSelectOption, Progress, TextInput } from '@patternfly/react-core'
import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useRef, useState, type ReactNode } from 'react'
import { Link, useSearchParams } from 'react-router'
import type { Stage } from '../forms/bring'
import { Actions } from '../ui/actions'
import { flag } from '../ui/command'
import { size } from '../ui/size'

type Trust = 'signed' | 'unsigned'

// reasoned reports whether a reason has the three words that the director asks for.
const reasoned = (reason: string) => reason.trim().split(/\s+/).length >= 3

// useTrust is why an import is trusted: its signature, or the reason for which it is used without one.
export function useTrust() {
  const [trust, setTrust] = useState<Trust>('signed')
  const [reason, setReason] = useState('')
  const bare = trust === 'unsigned'
  return { trust, setTrust, reason, setReason, unsigned: bare ? reason.trim() : '', ready: !bare || reasoned(reason) }
}

interface TrustProps {
  id: string // of this form, as the beginning of the fields' ids
  of: ReturnType<typeof useTrust>
  busy: boolean
  children?: ReactNode // further fields of what is signed
}

export function TrustFields({ id, of, busy, children }: TrustProps) {
  return (
    <>
      <FormGroup label="Trust" fieldId={`${id}-trust`}>
        <FormSelect id={`${id}-trust`} value={of.trust} isDisabled={busy} onChange={(_, v) => of.setTrust(v as Trust)}>
          <FormSelectOption value="signed" label="It is signed with a trusted key" />
          <FormSelectOption value="unsigned" label="It has no signature" />
        </FormSelect>
      </FormGroup>
      {of.trust === 'signed' ? (
        children
      ) : (
        <FormGroup
          label="Why it is used without a signature, in three words or more"
          fieldId={`${id}-reason`}
          isRequired
        >
          <TextInput id={`${id}-reason`} isRequired value={of.reason} onChange={(_, v) => of.setReason(v)} />
        </FormGroup>
      )}
    </>
  )
}

// unsignedFlag is the reason as a flag of a command.
export const unsignedFlag = (of: ReturnType<typeof useTrust>) =>
  flag('unsigned', of.trust === 'unsigned' ? of.unsigned || 'WHY' : '')

// Sum is a checksum, whole.
export function Sum({ children }: { children: string }) {
  return <span className="mono break">{children}</span>
}

// stopped is why the person's Stop ends an import, and not that the page was left.
export const stopped = new Error('The import was stopped.')

// useImport runs one part of an import at a time. Leaving the page, or stop, ends it without an error. Lists of what is
// imported are asked for again, because no event tells of an import.
export function useImport() {
  const [stage, setStage] = useState<Stage>()
  const [failed, setFailed] = useState<unknown>()
  const abort = useRef<AbortController>(undefined)
  const queries = useQueryClient()
  useEffect(() => () => abort.current?.abort(), [])
  const run = async (act: (signal: AbortSignal, show: (s: Stage) => void) => Promise<void>) => {
    const control = new AbortController()
    abort.current = control
    setFailed(undefined)
    try {
      await act(control.signal, setStage)
    } catch (err) {
      if (!control.signal.aborted) setFailed(err)
    } finally {
      setStage(undefined)
      void queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/images' || q.queryKey[1] === '/releases' })
    }
  }
  return { stage, failed, run, stop: () => abort.current?.abort(stopped) }
}

export function StageBar({ of }: { of: Stage }) {
  return (
    <Progress
      aria-label="Import"
      title={of.text}
      label={of.total ? `${size(of.done)} of ${size(of.total)}` : ' '}
      value={of.total ? Math.floor((100 * of.done) / of.total) : 0}
    />
  )
}

export function ImportActions({ ready, stage, stop }: { ready: boolean; stage: Stage | undefined; stop: () => void }) {
  return (
    <Actions>
      <Button
        type="submit"
        isDisabled={!ready}
        isAriaDisabled={stage !== undefined} // it keeps the focus
        isLoading={stage !== undefined}
      >
        Import
      </Button>
      {stage && (
        <Button variant="secondary" onClick={stop}>
          Stop
        </Button>
      )}
    </Actions>
  )
}

// Onward leads from what was imported to the cluster that it is for, or to its document.
export function Onward({ document }: { document: string }) {
  const [params] = useSearchParams()
  return params.get('for') === 'cluster' ? (
    <Link to="/clusters/new?step=image">Back to the new cluster</Link>
  ) : (
    <Link to={document}>Write the document that clusters name</Link>
  )
}
