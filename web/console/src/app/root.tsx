import { Bullseye, Modal, ModalBody, ModalHeader, Spinner } from '@patternfly/react-core'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useEffect, useRef, useState } from 'react'
import type { Schemas } from '../api/client'
import { onSessionEnded } from '../api/ended'
import { keepFresh } from '../api/live'
import { problemOf } from '../api/problem'
import { follow, useLiveness } from '../api/stream'
import { LoginForm, LoginScreen, MustChange, Unreachable } from './login'
import { MeContext } from './me'
import { whoAmI } from './queries'
import { Shell } from './shell'
import { Alert } from '../ui/alert'

// Root shows the log-in, the change of a one-time password, or the console.
export function Root() {
  const queries = useQueryClient()
  const asked = useQuery(whoAmI)
  const [me, setMe] = useState<Schemas['Me']>() // the last one who was logged in here
  const [ended, setEnded] = useState(false)
  useEffect(() => onSessionEnded(() => setEnded(true)), [])
  const known = asked.data
  useEffect(() => {
    if (!known) return
    setMe(known)
    setEnded(false) // also after a log-in in another tab
  }, [known, asked.dataUpdatedAt])
  const enter = (now: Schemas['Me']) => {
    if (me && me.user !== now.user) {
      location.reload() // nothing of the other user stays
      return
    }
    setEnded(false)
    setMe(now)
    queries.setQueryData(whoAmI.queryKey, now)
    void queries.invalidateQueries()
  }
  const status = asked.error == null ? 0 : problemOf(asked.error).status
  if (!me && asked.isPending)
    return (
      <Bullseye className="loading">
        <Spinner aria-label="Loading" />
      </Bullseye>
    )
  if (!me && status === 401) return <LoginScreen onLogin={enter} />
  if (!me && asked.error != null) return <Unreachable of={asked.error} retry={() => void asked.refetch()} />
  const who = me ?? known
  if (!who) return null
  if (who.must_change_password) {
    return <MustChange user={who.user} onChanged={() => void asked.refetch()} />
  }
  return (
    <MeContext value={who}>
      <Live />
      <Shell />
      {ended && (
        <Modal isOpen variant="small" aria-labelledby="again">
          <ModalHeader title="Your session has ended" labelId="again" />
          <ModalBody>
            <Alert isInline isPlain variant="info" title="Nothing on this page is lost. Log in to go on." />
            <LoginForm as={who.user} onLogin={enter} />
          </ModalBody>
        </Modal>
      )}
    </MeContext>
  )
}

// Live keeps what is shown fresh.
function Live() {
  const queries = useQueryClient()
  useEffect(() => {
    const abort = new AbortController()
    follow(abort.signal)
    const stop = keepFresh(queries)
    return () => {
      abort.abort()
      stop()
    }
  }, [queries])
  // A stream also ends with its session, which the next answer tells.
  const { live } = useLiveness()
  const was = useRef(false)
  useEffect(() => {
    if (was.current && !live) void queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/me' })
    was.current = live
  }, [live, queries])
  return null
}
