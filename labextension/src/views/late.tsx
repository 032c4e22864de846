/** Views that most users never open, in JupyterLab files of their own that the page gets when they are first shown. */

import type { FunctionComponent, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

/** A view that is drawn once its module has arrived. */
export function late<Props extends object>(load: () => Promise<FunctionComponent<Props>>): FunctionComponent<Props> {
  let View: FunctionComponent<Props> | null = null;
  return function Late(props: Props): JSX.Element | null {
    const [, redraw] = useState(false);
    useEffect(() => {
      if (View) return;
      void load().then((loaded) => {
        View = loaded;
        redraw(true);
      });
    }, []);
    return View && <View {...props} />;
  };
}
