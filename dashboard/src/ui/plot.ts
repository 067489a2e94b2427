/** uPlot and its style in a chunk of their own: only pages with charts load it. */
import "uplot/dist/uPlot.min.css";

export { default } from "uplot";
