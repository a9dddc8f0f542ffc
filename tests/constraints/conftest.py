def pytest_generate_tests(metafunc):
    """Let each law of a constraint run over its class's ``cases``."""
    if "constraint" in metafunc.fixturenames:
        cases = metafunc.cls.cases
        metafunc.parametrize("constraint", cases.values(), ids=list(cases))
