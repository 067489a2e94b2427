/** Steps through a list that is only known page by page: newest, newer (the browser's back), older. */
import { Button } from "./Button";
import { count } from "./format";

export function Pager(props: {
  readonly shown: number;
  readonly noun: string;
  readonly isFirst: boolean;
  readonly hasOlder: boolean;
  readonly onNewest: () => void;
  readonly onOlder: () => void;
}) {
  if (props.shown === 0 && props.isFirst && !props.hasOlder) return null;
  if (props.isFirst && !props.hasOlder) {
    return (
      <div class="pager">
        <span class="muted">
          {count(props.shown)} {props.noun}, all of them
        </span>
      </div>
    );
  }
  return (
    <nav class="pager" aria-label="Newer and older">
      <span class="muted">
        {count(props.shown)} {props.noun} on this page
      </span>
      <Button isSmall isDisabled={props.isFirst} onClick={props.onNewest}>
        Newest
      </Button>
      <Button isSmall isDisabled={props.isFirst} icon="back" onClick={() => history.back()}>
        Back
      </Button>
      <Button isSmall isDisabled={!props.hasOlder} onClick={props.onOlder}>
        Older
      </Button>
    </nav>
  );
}
