"""The review page in a browser: view, play, draw, decide, and no lost verdicts if the server is killed."""

import shutil

import pytest
from playwright.sync_api import expect, sync_playwright

from mast.review.database import open_store
from mast.review.verdicts import latest_verdicts
from tests.review.browsing import ReviewServer
from tests.review.runs import BAT, ONE, write_review_run

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

SCRIPT = "<img src=x onerror=alert(1)><script>alert(1)</script>"


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--mute-audio"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    server = ReviewServer(write_review_run(folder), cache=folder / "cache")
    server.database = f"sqlite:///{folder / 'found' / 'review.sqlite'}"
    yield server
    server.kill()


def open_page(context, served, path="/"):
    page = context.new_page()
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("console", lambda message: message.type == "error" and page.faults.append(message.text))
    page.on("dialog", lambda dialog: page.faults.append(dialog.message) or dialog.dismiss())
    page.goto(served.address + path)
    page.wait_for_selector("body.ready")
    return page


@pytest.fixture
def context(browser):
    opened = browser.new_context(viewport={"width": 1280, "height": 800})
    yield opened
    opened.close()


@pytest.fixture
def page(context, served):
    opened = open_page(context, served)
    yield opened
    assert opened.faults == []


def stored(page, served, id_part=""):
    """Wait until all verdicts are saved; return the latest verdicts with `id_part` in their event id."""
    expect(page.locator("#outbox")).to_have_text("All saved")
    with open_store(served.database) as store:
        return {
            name: verdict for name, verdict in latest_verdicts(store.verdicts()).items() if id_part in name
        }


def pixels(page) -> str:
    return page.evaluate("document.getElementById('spectrogram').toDataURL()")


def view_of(page) -> list[float]:
    """Return the image of the overview, whose frame shows the visible part of the recording."""
    return page.evaluate("document.getElementById('overview').toDataURL()")


def test_zoom_pan_colours_and_playback(page):
    page.wait_for_function("document.getElementById('spectrogram').width > 300")
    page.wait_for_timeout(400)
    first, complete = pixels(page), view_of(page)
    page.keyboard.press("+")
    page.wait_for_timeout(300)
    closer = view_of(page)
    assert closer != complete and pixels(page) != first
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(200)
    assert view_of(page) != closer
    page.keyboard.press("0")
    page.wait_for_timeout(200)
    assert view_of(page) == complete
    before = pixels(page)
    page.keyboard.press("c")
    page.wait_for_timeout(200)
    assert pixels(page) != before
    page.keyboard.press("n")
    with page.expect_response(lambda response: "/api/audio" in response.url) as response:
        page.keyboard.press("Space")
    assert response.value.status == 200 and "low_hz=1000" in response.value.url
    page.keyboard.press("?")
    expect(page.locator("#help")).to_contain_text("next event without a verdict")
    page.keyboard.press("Escape")


def test_accept_label_and_undo(page, served):
    page.keyboard.press("n")
    expect(page.locator("#chosen")).to_contain_text("Not reviewed")
    page.keyboard.press("a")
    [verdict] = stored(page, served).values()
    assert (verdict.state, verdict.start_s, verdict.score) == ("accepted", 1.0, pytest.approx(0.3))
    page.keyboard.press("z")
    expect(page.locator("#chosen")).to_contain_text("Not reviewed")
    [undone] = stored(page, served).values()
    assert (undone.state, undone.version, undone.reverts) == ("open", 2, 1)
    page.keyboard.press("l")
    page.locator("#label").fill(SCRIPT)
    page.keyboard.press("Enter")
    expect(page.locator("#chosen")).to_contain_text(SCRIPT)
    [labelled] = stored(page, served).values()
    assert (labelled.label, labelled.state, labelled.version) == (SCRIPT, "accepted", 3)


def test_draw_move_resize_and_mark_as_reviewed(page, served):
    canvas = page.locator("#spectrogram").bounding_box()
    at = lambda x, y: (canvas["x"] + canvas["width"] * x, canvas["y"] + canvas["height"] * y)  # noqa: E731
    page.keyboard.press("d")
    page.mouse.move(*at(0.7, 0.3))
    page.mouse.down()
    page.mouse.move(*at(0.75, 0.4), steps=3)
    page.mouse.move(*at(0.8, 0.5), steps=3)
    page.mouse.up()
    page.locator("#label").fill("owl")
    page.keyboard.press("Enter")
    expect(page.locator("#chosen")).to_contain_text("owl")
    [drawn] = stored(page, served, "drawn-").values()
    assert drawn.label == "owl" and drawn.state == "accepted" and drawn.model is None
    page.mouse.move(*at(0.75, 0.4))
    page.mouse.down()
    page.mouse.move(*at(0.7, 0.4), steps=4)
    page.mouse.up()
    [moved] = stored(page, served, "drawn-").values()
    assert moved.start_s < drawn.start_s - 0.5 and moved.low_hz == pytest.approx(drawn.low_hz, abs=60)
    assert moved.end_s - moved.start_s == pytest.approx(drawn.end_s - drawn.start_s, abs=1e-6)
    page.keyboard.press("Shift+ArrowRight")
    [longer] = stored(page, served, "drawn-").values()
    assert longer.end_s > moved.end_s and longer.start_s == moved.start_s
    page.keyboard.press("V")
    [span] = stored(page, served, "span-").values()
    assert (span.kind, span.start_s, span.end_s, span.state) == ("span", 0.0, 20.0, "accepted")


def test_the_gallery_decides_with_one_key_each(page, served):
    page.keyboard.press("g")
    expect(page.locator("#cards article").first).to_contain_text("the next event in this recording")
    count = page.locator("#cards article").count()
    page.keyboard.press("r")
    page.keyboard.press("u")
    page.keyboard.press("z")
    before = stored(page, served)
    assert sorted(verdict.state for verdict in before.values() if verdict.queue == "sequential") == [
        "open",
        "rejected",
    ]
    page.reload()
    page.wait_for_selector("body.ready")
    page.keyboard.press("g")
    expect(page.locator("#cards article")).to_have_count(count - 1)


def test_the_gallery_labels_events_and_repeats_the_last_label(page, served):
    page.keyboard.press("g")
    cards = page.locator("#cards article")
    expect(cards.first).to_be_visible()
    before = stored(page, served)
    page.keyboard.press("L")  # there is no last label yet
    expect(page.locator(".toast")).to_contain_text("No label to repeat yet")
    page.keyboard.press("l")
    page.locator("#label").fill("Strix aluco")
    page.keyboard.press("Enter")
    expect(cards.nth(0)).to_have_class("accepted ")
    expect(cards.nth(1)).to_have_class(" focus")
    page.keyboard.press("L")
    labelled = [item for item in stored(page, served).values() if item.label == "Strix aluco"]
    assert [(item.state, item.queue) for item in labelled] == [("accepted", "sequential")] * 2
    page.keyboard.press("l")
    page.keyboard.press("Escape")  # cancel
    page.keyboard.press("z")
    page.keyboard.press("z")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_contain_text("repeat the last label")
    page.keyboard.press("Escape")
    after = stored(page, served)
    assert {name: (item.state, item.label) for name, item in after.items() if name in before} == {
        name: (item.state, item.label) for name, item in before.items()
    }
    assert all(
        item.state == "open" and item.label is None for name, item in after.items() if name not in before
    )


def test_an_event_next_to_the_listed_one_is_no_part_of_the_audit(context, tmp_path):
    server = ReviewServer(write_review_run(tmp_path), cache=tmp_path / "cache")
    server.database = f"sqlite:///{tmp_path / 'found' / 'review.sqlite'}"
    try:
        page = open_page(context, server)
        page.locator("#queue").select_option(label="audit")
        expect(page.locator("#title")).to_have_text(BAT)
        page.locator("#spectrogram").focus()
        page.keyboard.press("a")
        expect(page.locator("#title")).to_have_text(ONE)
        expect(page.locator("#chosen")).to_contain_text("0.60")
        page.keyboard.press("p")
        expect(page.locator("#chosen")).to_contain_text("0.50")
        page.keyboard.press("r")
        expect(page.locator("#chosen")).to_contain_text("0.60")  # the listed event is still open
        page.keyboard.press("v")
        page.keyboard.press("p")
        page.keyboard.press("Alt+ArrowLeft")
        page.keyboard.press("n")
        page.keyboard.press("a")
        expect(page.locator("#chosen")).to_contain_text("0.40")  # the next event of the audit
        verdicts = [(item.score, item.state, item.queue) for item in stored(page, server).values()]
    finally:
        server.kill()
    assert verdicts == [
        (pytest.approx(0.9), "accepted", "random-sample"),
        (pytest.approx(0.5), "rejected", None),
        (None, "accepted", "random-sample"),
        (pytest.approx(0.6), "accepted", "random-sample"),
    ]
    assert page.faults == []


def test_a_late_response_of_a_queue_is_not_shown_in_another_queue(context, served):
    page, late = open_page(context, served), []
    page.route("**/api/queue-items?queue=uncertain*", lambda route: late.append(route))  # noqa: PLW0108 (playwright cannot set an attribute on a built-in)
    page.keyboard.press("g")
    expect(page.locator("#cards article").first).to_be_visible()
    page.locator("#queue").select_option("uncertain")
    page.wait_for_timeout(200)
    page.locator("#queue").select_option("random-sample")
    expect(page.locator("#cards article").first).to_contain_text("random sample")
    reasons = page.locator("#cards article .reason").all_inner_texts()
    with page.expect_response(lambda response: "uncertain" in response.url):
        late[0].continue_()
    page.wait_for_timeout(200)
    assert len(late) == 1 and page.locator("#cards article .reason").all_inner_texts() == reasons
    assert page.faults == []


def test_a_verdict_on_an_empty_minute_is_changed_and_a_reviewed_mark_is_removed(context, tmp_path):
    server = ReviewServer(write_review_run(tmp_path), cache=tmp_path / "cache")
    server.database = f"sqlite:///{tmp_path / 'found' / 'review.sqlite'}"
    try:
        page = open_page(context, server)
        path = "/api/queue-items?queue=stratified-minutes&count=24"
        items = page.request.get(server.address + path).json()["items"]
        number = next(number for number, item in enumerate(items) if not item["boxes"])
        page.keyboard.press("g")
        page.locator("#queue").select_option("stratified-minutes")
        expect(page.locator("#cards article")).to_have_count(len(items))
        card = page.locator("#cards article").nth(number)
        card.click()
        page.keyboard.press("a")
        expect(card).to_have_class("accepted ")
        card.click()
        page.keyboard.press("r")
        expect(card).to_have_class("rejected ")
        [span] = stored(page, server, "span-").values()
        assert (span.state, span.version) == ("rejected", 2)
        page.keyboard.press("z")
        expect(card).to_have_class("accepted ")
        page.keyboard.press("z")
        expect(card).to_have_class(" focus")
        [span] = stored(page, server, "span-").values()
        assert (span.state, span.version, span.reverts) == ("open", 4, 3)
        page.keyboard.press("g")
        page.keyboard.press("V")
        expect(page.locator("#outbox")).to_have_text("All saved")
        page.reload()
        page.wait_for_selector("body.ready")
        page.keyboard.press("x")
        expect(page.locator(".toast")).to_contain_text("No longer marked")
        assert {item.state for item in stored(page, server, "span-").values()} == {"open"}
    finally:
        server.kill()
    assert page.faults == []


def test_unsent_verdicts_belong_to_their_user(page):
    counts = page.evaluate("""async () => {
      const { Outbox } = await import('/pages/outbox.js');
      const outboxOf = (user) => Object.assign(new Outbox('other', user, () => {}), { flush() {} });
      outboxOf('Anna Schmidt').add({ event_id: 'a' });
      const counts = ['Anna', 'Anna Schmidt'].map((user) => outboxOf(user).unsent().length);
      localStorage.clear();
      return counts;
    }""")
    assert counts == [0, 1]


def test_no_verdict_is_lost_when_the_server_is_killed_and_the_tab_closed(context, served, tmp_path):
    page = open_page(context, served)
    page.keyboard.press("q")
    expect(page.locator("#reason")).to_have_text("the next event in this recording")
    with open_store(served.database) as store:
        before = len(list(store.verdicts()))
    served.kill()
    page.keyboard.press("D")
    page.keyboard.press("Alt+ArrowLeft")
    page.keyboard.press("v")
    expect(page.locator("#outbox")).to_have_text("3 verdicts waiting for the server")
    page.close()
    served.start()
    again = open_page(context, served)
    expect(again.locator("#outbox")).to_have_text("All saved")
    with open_store(served.database) as store:
        after = list(store.verdicts())[before:]
    assert [(verdict.kind, verdict.version) for verdict in after] == [("sound", 1), ("sound", 2), ("span", 1)]
    again.reload()
    again.wait_for_selector("body.ready")
    with open_store(served.database) as store:
        assert len(list(store.verdicts())) == before + 3


def test_the_second_user_reads_who_was_first(context, served):
    first, second = open_page(context, served), open_page(context, served)
    for page in (first, second):
        for _ in range(3):
            page.keyboard.press("n")
    first.keyboard.press("a")
    expect(first.locator("#outbox")).to_have_text("All saved")
    second.keyboard.press("r")
    expect(second.locator(".toast")).to_contain_text("accepted this in the meantime")
    expect(second.locator("#progress")).to_have_text(first.locator("#progress").inner_text())


def test_a_verdict_that_the_server_refuses_is_not_counted(context, served):
    page = open_page(context, served)
    before = page.locator("#progress").inner_text()
    invalid = {"recording_id": "nowhere.wav"}
    page.route(
        "**/api/verdicts",
        lambda route: route.continue_(post_data={**route.request.post_data_json, **invalid}),
    )
    page.keyboard.press("f")
    page.keyboard.press("a")
    expect(page.locator(".toast")).to_be_visible()
    expect(page.locator("#outbox")).to_have_text("All saved")
    expect(page.locator("#progress")).to_have_text(before)
    page.unroute("**/api/verdicts")
    page.keyboard.press("f")
    page.keyboard.press("a")
    expect(page.locator("#progress")).not_to_have_text(before)
    counted = page.locator("#progress").inner_text()
    expect(page.locator("#outbox")).to_have_text("All saved")
    page.reload()
    expect(page.locator("#progress")).to_have_text(counted)


def test_file_names_are_text_and_ultrasound_is_slowed_down(page):
    page.locator("#search").fill("bat")
    expect(page.locator("#recordings li")).to_have_count(1)
    page.locator("#recordings button").first.click()
    expect(page.locator("#title")).to_have_text(BAT)
    page.locator("#spectrogram").focus()
    page.keyboard.press("n")
    with page.expect_response(lambda response: "/api/audio" in response.url) as response:
        page.keyboard.press("Space")
    assert "slow=" in response.value.url and response.value.status == 200


def test_an_address_without_a_known_recording_opens_the_first_one(context, served):
    for path in ("/#%", "/#card/none.wav"):
        page = open_page(context, served, path)
        expect(page.locator("#title")).to_have_text(ONE)
        page.close()


def test_the_box_index_finds_all_boxes_in_a_span(page):
    differences = page.evaluate("""async () => {
      const { BoxIndex } = await import('/pages/box-index.js');
      const rows = Array.from({ length: 10000 }, (_, at) => {
        const start_s = Math.random() * 3600;
        return { event_id: String(at), kind: 'sound', state: 'open', start_s, end_s: start_s + Math.random() ** 4 * 20 };
      });
      const boxes = new BoxIndex(rows.slice(0, 9000));
      for (const box of rows.slice(9000)) boxes.put(box);
      let differences = 0;
      for (let trial = 0; trial < 200; trial++) {
        const from = Math.random() * 3600;
        const found = boxes.between(from, from + 30).map((box) => box.event_id).sort();
        const inside = rows.filter((box) => box.start_s < from + 30 && box.end_s > from);
        const expected = inside.map((box) => box.event_id).sort();
        differences += found.join() !== expected.join();
      }
      return differences;
    }""")
    assert differences == 0


def test_a_tablet_shows_everything_without_scrolling_sideways(browser, served):
    context = browser.new_context(viewport={"width": 820, "height": 1180}, has_touch=True)
    page = open_page(context, served)
    expect(page.locator("#list")).to_be_hidden()
    page.locator("#toggle-list").tap()
    page.locator("#recordings button").first.tap()
    expect(page.locator("#list")).to_be_hidden()
    for name in ("spectrogram", "overview", "tools", "panel"):
        box = page.locator(f"#{name}").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 820 and box["y"] + box["height"] <= 1180, name
    assert page.evaluate("document.documentElement.scrollWidth") <= 820
    assert page.faults == []
    context.close()
