from hypothesis import HealthCheck, settings

settings.register_profile(
    "lipopt", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("lipopt")
