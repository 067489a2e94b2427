/** What stands around every page: navigation, the live sign, theme, who is signed in, notes and questions. */
import { useEffect, useState } from "preact/hooks";
import { Confirm } from "../ui/Dialog";
import { Button } from "../ui/Button";
import { Empty, ErrorBox, Skeleton } from "../ui/States";
import { Icon } from "../ui/Icon";
import { Pill } from "../ui/Badge";
import { shortCount } from "../ui/format";
import { Toasts } from "../ui/Toast";
import { needsALook as isTroubledCrawl } from "../pages/crawls/condition";
import { needsALook as isTroubledRing } from "../pages/rings/condition";
import { needsALook } from "../pages/streams/condition";
import { startWatching } from "../pages/streams/watch";
import { Help } from "./help";
import { useKeys } from "./keys";
import { awayReason, crawls, link, overview, rings, startLive, streams } from "./live";
import { Logo } from "./logo";
import { adminPage, isOf, type Page, visiblePages } from "./pages";
import { go, href, route } from "./router";
import { session, signOut, standing, whoAmI } from "./session";
import { SignIn } from "./signin";
import { nextTheme, theme } from "./theme";

const LINKS = {
  live: ["good", "Live"],
  polling: ["warn", "Every 5 s"],
  connecting: ["warn", "Reconnecting"],
  away: ["bad", "Store away"],
} as const;

function LiveSign() {
  const [tone, text] = LINKS[link.value];
  return (
    <span class={`live tone-${tone}`} role="status" title={awayReason.value || `News from the server: ${text.toLowerCase()}`}>
      <i class="dot" aria-hidden="true" />
      {text}
    </span>
  );
}

function Marker({ id }: { readonly id: string }) {
  const news = overview.value;
  if (news === null) return null;
  const firing = news.alerts.filter((each) => each.is_firing).length;
  if (id === "inbox" && news.dead_letters > 0) return <Pill tone="grave">{shortCount(news.dead_letters)}</Pill>;
  if (id === "breakers" && news.open_breakers.length > 0) return <Pill tone="bad">{news.open_breakers.length}</Pill>;
  if (id === "alerts" && firing > 0) return <Pill tone="bad">{firing}</Pill>;
  const troubled = streams.value?.filter(needsALook).length ?? 0;
  if (id === "streams" && troubled > 0) return <Pill tone="bad">{troubled}</Pill>;
  const troubledRings = rings.value?.filter(isTroubledRing).length ?? 0;
  if (id === "rings" && troubledRings > 0) return <Pill tone="bad">{troubledRings}</Pill>;
  const troubledCrawls = crawls.value?.filter(isTroubledCrawl).length ?? 0;
  if (id === "crawls" && troubledCrawls > 0) return <Pill tone="bad">{troubledCrawls}</Pill>;
  if (id === "workers") return <Pill tone={news.workers === 0 ? "bad" : "muted"}>{news.workers}</Pill>;
  return null;
}

function Navigation({ pages, onFollow }: { readonly pages: readonly Page[]; readonly onFollow: () => void }) {
  const here = route.value.parts[0];
  return (
    <nav aria-label="Pages" onClick={onFollow}>
      {pages.map((page) => (
        <a key={page.id} href={href(page.id)} title={page.title} aria-current={isOf(page, here) ? "page" : undefined}>
          <Icon name={page.id} />
          <span>{page.title}</span>
          <Marker id={page.id} />
        </a>
      ))}
    </nav>
  );
}

function Who() {
  const who = session.value;
  if (who === null) return null;
  return (
    <div class="who">
      <div>
        <span class="who-name">{who.is_open ? "This machine" : who.name}</span>
        <span class="muted">
          {who.is_read_only ? "read-only" : who.role}
          {who.tenant !== null && ` · ${who.tenant}`}
        </span>
      </div>
      {!who.is_open && <Button kind="quiet" icon="out" label="Sign out" onClick={signOut} />}
    </div>
  );
}

function ThemeButton() {
  const now = theme.value;
  const icon = now === "system" ? "system" : now === "light" ? "sun" : "moon";
  return (
    <Button
      kind="quiet"
      icon={icon}
      label={`Theme: ${now}. Press for ${nextTheme(now)}.`}
      onClick={() => {
        theme.value = nextTheme(now);
      }}
    />
  );
}

function Body({ pages }: { readonly pages: readonly Page[] }) {
  const [first, ...rest] = route.value.parts;
  const page = pages.find((each) => isOf(each, first));
  useEffect(() => {
    document.title = page ? `${page.title} · Holdfast` : "Holdfast";
  }, [page]);
  if (page === undefined) {
    const withheld = adminPage(first);
    return (
      <Empty title={withheld ? `${withheld.title} needs the role admin` : "There is no such page"} icon="warning">
        <a href={href("inbox")}>Go to the inbox</a>
      </Empty>
    );
  }
  return <>{page.show(rest, first)}</>;
}

function SignedIn() {
  const [isHelping, setHelping] = useState(false);
  const [isMenuOpen, setMenuOpen] = useState(false);
  const pages = visiblePages();
  useEffect(startLive, []);
  useEffect(startWatching, []);
  useKeys([
    { keys: "?", does: "show these keys", run: () => setHelping(true) },
    ...pages.map((page) => ({
      keys: `g ${page.key}`,
      does: `go to ${page.title}`,
      run: () => go(href(page.id)),
    })),
  ]);
  return (
    <div class={`shell ${isMenuOpen ? "menu-open" : ""}`}>
      <a class="skip" href="#body" onClick={(event) => {
        event.preventDefault();
        document.getElementById("body")?.focus();
      }}>
        Skip to the page
      </a>
      <aside>
        <div class="brand">
          <Logo />
          <strong>Holdfast</strong>
          <LiveSign />
          <Button
            class="menu-button"
            kind="quiet"
            icon={isMenuOpen ? "close" : "menu"}
            label={isMenuOpen ? "Close the menu" : "Open the menu"}
            onClick={() => setMenuOpen(!isMenuOpen)}
          />
        </div>
        <div class="menu">
          <Navigation pages={pages} onFollow={() => setMenuOpen(false)} />
          <div class="foot">
            <Who />
            <div class="foot-row">
              <span class="muted num">{session.value?.version}</span>
              <Button kind="quiet" label="Keyboard help" onClick={() => setHelping(true)}>
                <kbd>?</kbd>
              </Button>
              <ThemeButton />
            </div>
          </div>
        </div>
      </aside>
      <main id="body" tabIndex={-1}>
        {link.value === "away" && (
          <div class="banner tone-bad" role="alert">
            <Icon name="warning" />
            <span>
              <strong>The store cannot be reached.</strong> What is shown may be old; jobs are safe, and workers go on when
              it is back. {awayReason.value && <span class="muted">{awayReason.value}</span>}
            </span>
          </div>
        )}
        <Body pages={pages} />
      </main>
      {isHelping && <Help onClose={() => setHelping(false)} />}
    </div>
  );
}

export function Shell() {
  useEffect(() => void whoAmI(), []);
  const now = standing.value;
  return (
    <>
      {now.is === "in" && <SignedIn key={`${now.session.name} ${now.session.role}`} />}
      {now.is === "out" && <SignIn hasEnded={now.hasEnded} />}
      {now.is === "asking" && (
        <main class="signin">
          <Skeleton lines={3} />
        </main>
      )}
      {now.is === "unreachable" && (
        <main class="signin">
          <ErrorBox problem={now.problem} onRetry={() => void whoAmI()} />
        </main>
      )}
      <Confirm />
      <Toasts />
    </>
  );
}
