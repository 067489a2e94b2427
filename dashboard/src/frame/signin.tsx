/** Signing in with a token; the server answers with a cookie that scripts cannot read. */
import { useState } from "preact/hooks";
import { type ApiProblem, problemOf } from "../api/client";
import { Button } from "../ui/Button";
import { Field } from "../ui/Field";
import { Logo } from "./logo";
import { signIn } from "./session";

function said(problem: ApiProblem | null): string | undefined {
  if (problem === null) return undefined;
  if (problem.status === 401) return "This token is not known.";
  return problem.message;
}

export function SignIn({ hasEnded }: { readonly hasEnded: boolean }) {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (token.trim() === "") return;
    setBusy(true);
    try {
      await signIn(token.trim());
    } catch (error) {
      setProblem(problemOf(error));
      setBusy(false);
    }
  };
  return (
    <main class="signin">
      <form onSubmit={(event) => void submit(event)}>
        <h1>
          <Logo /> Holdfast
        </h1>
        <p class="muted">{hasEnded ? "Your session has ended. Sign in again to go on where you were." : "Sign in to go on."}</p>
        <Field label="Token" error={said(problem)} hint="Whoever runs this server has it.">
          {(own) => (
            <input
              {...own}
              type="password"
              autocomplete="current-password"
              autoFocus
              maxLength={500}
              value={token}
              onInput={(event) => setToken(event.currentTarget.value)}
            />
          )}
        </Field>
        <Button type="submit" kind="main" icon="key" isBusy={isBusy}>
          Sign in
        </Button>
      </form>
    </main>
  );
}
