// Says whether what is live on a page still is, and sends a filter when a choice is made.
"use strict";
(function () {
  function say(text, state) {
    document.querySelectorAll("[data-live]").forEach(function (place) {
      if (place.dataset.live !== state) {
        place.dataset.live = state;
        place.textContent = text;
      }
    });
  }

  // A stream that ends in peace is opened again by the browser itself, and no error: what
  // opens streams here is told only of those that the browser has given up.
  htmx.createEventSource = function (url) {
    var source = new EventSource(url);
    var tell = null, late = null;
    Object.defineProperty(source, "onerror", {
      get: function () { return tell; },
      set: function (given) { tell = given; }
    });
    source.addEventListener("open", function () {
      window.clearTimeout(late);
      say("live", "on");
    });
    source.addEventListener("error", function (event) {
      window.clearTimeout(late);
      late = window.setTimeout(say, 3000, "not live: trying again", "off");
      if (source.readyState === EventSource.CLOSED && tell) { tell.call(source, event); }
    });
    return source;
  };

  document.addEventListener("change", function (event) {
    var form = event.target.closest("form[data-at-once]");
    if (form && event.target.tagName === "SELECT") { form.requestSubmit(); }
  });
})();
