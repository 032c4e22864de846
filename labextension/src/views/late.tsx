/** Views that are not shown at first. In JupyterLab each is a separate file, which is loaded when the view is first shown. */

import type { FunctionComponent, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

/** Create a component that is drawn once its module has loaded. */
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
