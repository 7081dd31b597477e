// Browsers refuse workers to a page that was opened from file://. There, and only there, the script
// of a worker runs in a hidden frame of the page, and messages go back and forth as between the two.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      const script = document.createElement("script");
      script.src = new URL(url, document.baseURI);
      frame.srcdoc = `<!doctype html>${script.outerHTML}`;
      this.inside = new Promise((ready) => {
        frame.onload = () => {
          const { contentWindow } = frame;
          contentWindow.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          ready(contentWindow);
        };
      });
      document.body.append(frame);
    }

    async postMessage(data) {
      const inside = await this.inside;
      inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    }
  };
}
