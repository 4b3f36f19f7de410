import {
  Dropdown,
  DropdownItem,
  DropdownList,
  Label,
  Masthead,
  MastheadBrand,
  MastheadContent,
  MastheadLogo,
  MastheadMain,
  MastheadToggle,
  MenuToggle,
  Nav,
  NavItem,
  NavList,
  Page,
  PageSidebar,
  PageSidebarBody,
  PageToggleButton,
  SkipToContent,
  Toolbar,
  ToolbarContent,
  ToolbarGroup,
  ToolbarItem,
} from '@patternfly/react-core'
import { BarsIcon, MoonIcon, SearchIcon, SunIcon, UserIcon } from '@patternfly/react-icons'
import { Button } from '@patternfly/react-core'
import { memo, useCallback, useMemo, useState } from 'react'
import { Link, Outlet, useLocation, useNavigate } from 'react-router'
import { client } from '../api/client'
import { useAhead } from '../api/clock'
import { useLiveness } from '../api/stream'
import { Alert } from '../ui/alert'
import { GoContext, RowLink } from '../ui/rowLink'
import { duration } from '../ui/time'
import { useMe } from './me'
import mark from '../favicon.svg'
import { Palette, usePalette } from './palette'
import { placesOf } from './places'
import { setTheme, useTheme } from './theme'

// Shell is drawn again only when something in it changes. A change of the address, as filters make many, draws the page
// alone.
export const Shell = memo(function Shell() {
  const palette = usePalette()
  const navigate = useNavigate()
  const go = useCallback((path: string) => void navigate(path), [navigate])
  return (
    <GoContext value={go}>
      <Page
        className="shell"
        isManagedSidebar
        mainContainerId="main"
        masthead={<Head onSearch={palette.open} />}
        sidebar={<Side />}
        skipToContent={<SkipToContent href="#main">Skip to the page</SkipToContent>}
      >
        <Clock />
        <Outlet />
        {palette.isOpen && <Palette close={palette.close} />}
      </Page>
    </GoContext>
  )
})

const wrong = 60_000 // ms

// Clock says that this machine's clock is wrong, or the director's.
function Clock() {
  const ahead = useAhead()
  if (Math.abs(ahead) < wrong) return null
  const far = `${duration(Math.abs(ahead) / 1000)} ${ahead > 0 ? 'ahead of' : 'behind'}`
  return (
    <Alert variant="warning" isInline title={`Your machine's clock is ${far} the director's.`}>
      Times on these pages are by the director's clock.
    </Alert>
  )
}

function Head({ onSearch }: { onSearch: () => void }) {
  return (
    <Masthead>
      <MastheadMain>
        <MastheadToggle>
          <PageToggleButton variant="plain" aria-label="Navigation">
            <BarsIcon />
          </PageToggleButton>
        </MastheadToggle>
        <MastheadBrand>
          <MastheadLogo
            component={(props) => (
              <Link {...props} to="/" aria-label="Director: inbox">
                <img src={mark} alt="" width="24" height="24" />
                <strong>Director</strong>
              </Link>
            )}
          />
        </MastheadBrand>
      </MastheadMain>
      <MastheadContent>
        <Toolbar isStatic>
          <ToolbarContent>
            <ToolbarGroup align={{ default: 'alignEnd' }}>
              <ToolbarItem>
                <Freshness />
              </ToolbarItem>
              <ToolbarItem>
                <Button variant="control" icon={<SearchIcon />} onClick={onSearch} aria-label="Go to (Ctrl-K)">
                  <span className="go-to">Go to</span>
                </Button>
              </ToolbarItem>
              <ToolbarItem>
                <ThemeButton />
              </ToolbarItem>
              <ToolbarItem>
                <UserMenu />
              </ToolbarItem>
            </ToolbarGroup>
          </ToolbarContent>
        </Toolbar>
      </MastheadContent>
    </Masthead>
  )
}

// Freshness says that what is shown changes by itself, or as of when it is true.
function Freshness() {
  const { live, since } = useLiveness()
  return (
    <span role="status">
      {live ? (
        <Label color="green" isCompact variant="outline">
          live
        </Label>
      ) : (
        <Label color="orange" isCompact variant="outline">
          as of {since.toLocaleTimeString()}
        </Label>
      )}
    </span>
  )
}

function ThemeButton() {
  const theme = useTheme()
  const dark = theme === 'dark' || (theme === 'system' && matchMedia('(prefers-color-scheme: dark)').matches)
  return (
    <Button
      variant="plain"
      aria-label={dark ? 'Light theme' : 'Dark theme'}
      icon={dark ? <SunIcon /> : <MoonIcon />}
      onClick={() => setTheme(dark ? 'light' : 'dark')}
    />
  )
}

function UserMenu() {
  const me = useMe()
  const navigate = useNavigate()
  const [open, setOpen] = useState(false)
  const leave = async () => {
    await client.POST('/logout').catch(() => undefined)
    location.assign('/')
  }
  return (
    <Dropdown
      isOpen={open}
      onOpenChange={setOpen}
      onSelect={() => setOpen(false)}
      popperProps={{ position: 'right' }}
      toggle={(ref) => (
        <MenuToggle
          ref={ref}
          isExpanded={open}
          onClick={() => setOpen(!open)}
          icon={<UserIcon />}
          aria-label={`User ${me.user}`}
        >
          <span className="user-name">{me.user}</span>
        </MenuToggle>
      )}
    >
      <DropdownList>
        <DropdownItem isAriaDisabled description={me.role}>
          {me.user}
        </DropdownItem>
        <DropdownItem onClick={() => void navigate('/settings')}>Settings</DropdownItem>
        <DropdownItem to="/docs/" target="_blank">
          Manual
        </DropdownItem>
        <DropdownItem onClick={() => void leave()}>Log out</DropdownItem>
      </DropdownList>
    </Dropdown>
  )
}

function Side() {
  const me = useMe()
  const { pathname } = useLocation()
  const places = useMemo(() => placesOf(me), [me])
  const here = places.find(({ to }) =>
    to === '/' ? pathname === '/' : pathname === to || pathname.startsWith(to + '/'),
  )
  return <SideOf places={places} here={here?.to} />
}

// SideOf is drawn again only when the page is another one: a filter changes the address at each key.
const SideOf = memo(function SideOf({ places, here }: { places: ReturnType<typeof placesOf>; here?: string }) {
  return (
    <PageSidebar>
      <PageSidebarBody>
        <Nav aria-label="Pages">
          <NavList>
            {places.map((p) => (
              <NavItem key={p.to} isActive={p.to === here}>
                <RowLink to={p.to}>{p.text}</RowLink>
              </NavItem>
            ))}
          </NavList>
        </Nav>
      </PageSidebarBody>
    </PageSidebar>
  )
})
